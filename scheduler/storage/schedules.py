"""Schedules, their revisions and the ledger of occurrences: rows to models and back.

Functions take the open connection first and never commit. Arrays travel as parallel parameters, one per column, and
are unnested in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from scheduler.core.definitions.codec import definition_from_json
from scheduler.core.ledger.history import Expected, History, RevisionSpan
from scheduler.core.models import Definition
from scheduler.core.time.localtime import tz_version
from scheduler.storage.database import FAR_PAST, Connection
from scheduler.storage.queries import execute, fetch, fetch_value, fetch_values


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A schedule and its newest revision, as stored."""

    id: int
    name: str
    former_names: list[str]
    owner: str
    revision: int
    applied_at: datetime
    retired_at: datetime | None
    hash: str
    file: str
    definition: Mapping[str, Any]

    @property
    def decoded(self) -> Definition:
        """The newest revision's definition."""
        return definition_from_json(self.definition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a schedule is planned, and with which tz database: every date up to ``planned_until`` has its row."""

    id: int
    revision: int
    planned_until: datetime
    tzdata: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSlice:
    """Dates of one schedule to write, and the position it moves to; ``plan_at`` is when to look again."""

    position: Position
    planned_until: datetime
    plan_at: datetime
    dates: Sequence[Expected]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One occurrence as recorded."""

    schedule_id: int
    revision: int
    logical_date: datetime
    due_at: datetime
    wall: datetime | None
    fold: bool
    state: str
    reason: str | None
    job_id: int | None
    job_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RevisionRow:
    schedule_id: int
    name: str
    applied_at: datetime
    ledger_from: datetime
    revision: int
    valid_from: datetime
    valid_until: datetime | None
    hash: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many dates of a schedule ended alike, and what became of their jobs (``29 succeeded, 1 dead``)."""

    schedule: str
    state: str
    reason: str | None
    dates: int
    first: datetime
    last: datetime
    jobs: str | None


class DefinitionCache:
    """Definitions decoded from the database, by their hash; the same text is decoded once per process."""

    def __init__(self) -> None:
        self._by_hash: dict[tuple[str, str], Definition] = {}

    def decode(self, name: str, digest: str, stored: Mapping[str, Any]) -> Definition:
        key = (name, digest)
        if key not in self._by_hash:
            self._by_hash[key] = definition_from_json(stored)
        return self._by_hash[key]


def all_schedules(connection: Connection) -> list[ScheduleRow]:
    """Every schedule, retired ones too, with its newest revision, by name."""
    return fetch(connection, ScheduleRow, "schedules_list")


def due_positions(connection: Connection, now: datetime, limit: int) -> list[Position]:
    """Schedules the planner must look at now, the most urgent first."""
    return fetch(connection, Position, "schedules_due_for_planning", {"now": now, "limit": limit})


def histories(connection: Connection, ids: Iterable[int], cache: DefinitionCache) -> dict[int, History]:
    """The histories of these schedules, by id."""
    rows = fetch(connection, _RevisionRow, "revisions_of", {"ids": list(ids)})
    grouped: dict[int, list[_RevisionRow]] = {}
    for row in rows:
        grouped.setdefault(row.schedule_id, []).append(row)
    return {schedule_id: _history(group, cache) for schedule_id, group in grouped.items()}


def schedule_ids(connection: Connection, names: Sequence[str] | None) -> dict[str, int]:
    """Ids by name; all schedules that are not retired when ``names`` is None. Former names are found too."""
    if names is None:
        return {row.name: row.id for row in all_schedules(connection) if row.retired_at is None}
    by_name: dict[str, int] = {}
    for row in all_schedules(connection):
        by_name.update(dict.fromkeys((row.name, *row.former_names), row.id))
    return {name: by_name[name] for name in names if name in by_name}


def write_plan(
    connection: Connection, slices: Sequence[PlannedSlice], *, tzdata: str, now: datetime, by: str
) -> set[int]:
    """Write planned dates; returns the schedules that still were what the dates were computed from."""
    rows = [(piece.position.id, date) for piece in slices for date in piece.dates]
    return set(
        fetch_values(
            connection,
            "occurrences_plan",
            {
                "tzdata": tzdata,
                "now": now,
                "by": by,
                "ids": [piece.position.id for piece in slices],
                "revisions": [piece.position.revision for piece in slices],
                "planned_from": [piece.position.planned_until for piece in slices],
                "planned_until": [piece.planned_until for piece in slices],
                "plan_at": [piece.plan_at for piece in slices],
                **date_columns(rows),
            },
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RemovedWalls:
    is_taken: bool
    revisions: list[int] | None
    walls: list[datetime] | None
    folds: list[bool] | None
    logical_dates: list[datetime] | None


def unplan_walls(
    connection: Connection, position: Position, *, tzdata: str, after: datetime
) -> dict[tuple[int, datetime, bool], datetime] | None:
    """Take a schedule over to a newer tz database, removing what is planned in local time after an instant.

    Returns the removed dates by (revision, wall, fold); None if the schedule is not what was read any more.
    """
    (found,) = fetch(
        connection,
        _RemovedWalls,
        "occurrences_unplan_walls",
        {
            "id": position.id,
            "revision": position.revision,
            "planned_until": position.planned_until,
            "tzdata": tzdata,
            "after": after,
        },
    )
    if not found.is_taken:
        return None
    keys = zip(found.revisions or (), found.walls or (), found.folds or (), strict=True)
    return dict(zip(keys, found.logical_dates or (), strict=True))


def last_planned_wall(connection: Connection, schedule_id: int, planned_until: datetime) -> datetime | None:
    """The latest wall time that the ledger has up to where a schedule is planned; None for rules in elapsed time."""
    wall: datetime | None = fetch_value(
        connection, "occurrences_last_wall", {"id": schedule_id, "planned_until": planned_until}
    )
    return wall


def date_columns(rows: Sequence[tuple[int, Expected]]) -> dict[str, list[Any]]:
    """Expected dates of schedules as parallel arrays, one per column; queries take them as ``%(name)b``."""
    occurrences = [expected.occurrence for _, expected in rows]
    return {
        "row_ids": [schedule_id for schedule_id, _ in rows],
        "row_revisions": [expected.revision for _, expected in rows],
        "logical_dates": [occurrence.logical_date for occurrence in occurrences],
        "due_ats": [occurrence.due_at for occurrence in occurrences],
        "walls": [occurrence.wall for occurrence in occurrences],
        "folds": [occurrence.wall is not None and occurrence.wall.fold == 1 for occurrence in occurrences],
        "local_dates": [occurrence.local_date for occurrence in occurrences],
        "interval_starts": [occurrence.interval_start for occurrence in occurrences],
    }


def recorded_dates(
    connection: Connection, schedule_id: int, after: datetime, until: datetime, *, with_jobs: bool = False
) -> list[LedgerRow]:
    """What is recorded of a schedule for logical dates in ``(after, until]``, oldest first.

    ``job_status`` is that of a date's newest job, None without ``with_jobs``.
    """
    return fetch(
        connection,
        LedgerRow,
        "occurrences_between",
        {"id": schedule_id, "after": after, "until": until, "with_jobs": with_jobs, "tzdata": tz_version()},
    )


def outcomes(connection: Connection) -> list[Outcome]:
    """The decided dates of every schedule, counted by state and reason."""
    return fetch(connection, Outcome, "occurrences_outcomes")


def use_tzdata(connection: Connection, version: str) -> str:
    """Record the tz database that plans, if none is; returns the recorded one."""
    recorded: str = fetch_value(connection, "state_use_tzdata", {"tzdata": version})
    return recorded


def meet_tzdata(connection: Connection) -> None:
    """Take note that dates are about to be decided by hand with our tz database. Not in their transaction."""
    execute(connection, "state_meet_tzdata", {"tzdata": tz_version()})


def record_event(
    connection: Connection,
    kind: str,
    *,
    actor: str,
    schedule_id: int | None = None,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Note who did what."""
    execute(
        connection,
        "events_insert",
        {
            "kind": kind,
            "schedule_id": schedule_id,
            "actor": actor,
            "reason": reason,
            "details": Jsonb(dict(details or {})),
        },
    )


def _history(rows: Sequence[_RevisionRow], cache: DefinitionCache) -> History:
    newest = rows[-1]
    return History(
        schedule_id=newest.schedule_id,
        name=newest.name,
        applied_at=newest.applied_at,
        ledger_from=None if newest.ledger_from == FAR_PAST else newest.ledger_from.astimezone(UTC),
        spans=tuple(_span(row, cache.decode(row.name, row.hash, row.definition)) for row in rows),
    )


def _span(row: _RevisionRow, definition: Definition) -> RevisionSpan:
    return RevisionSpan(
        revision=row.revision,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        timing=definition.timing,
        grace=definition.catchup.grace,
        catchup=definition.catchup.policy,
    )

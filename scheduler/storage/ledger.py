"""Reading the story of single dates, and pruning the ledger: rows to models. Functions never commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from scheduler.core.ledger.history import Expected, History, fixed_revisions
from scheduler.core.time.localtime import tz_version
from scheduler.storage.database import Connection
from scheduler.storage.queries import fetch, fetch_value


@dataclass(frozen=True, slots=True, kw_only=True)
class DateRow:
    """One occurrence with everything that is recorded of it."""

    revision: int
    logical_date: datetime
    due_at: datetime
    wall: datetime | None
    fold: bool
    local_date: date
    interval_start: datetime
    generation: int
    state: str
    reason: str | None
    decided_at: datetime | None
    decided_by: str | None
    job_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DateJob:
    """A job of one date; ``produced_by`` is the job whose result the key has."""

    id: int
    status: str
    origin: str
    generation: int
    queue: str
    attempt_count: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    progress: float | None
    progress_note: str | None
    covers_from: datetime | None
    waiting_for: str | None
    last_error: str | None
    idempotency_key: str | None
    backfill_id: int | None
    produced_by: int | None
    result_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An event."""

    at: datetime
    kind: str
    job_id: int | None
    actor: str | None
    reason: str | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time in which a schedule does not fire."""

    from_at: datetime
    until_at: datetime | None
    keep: bool
    actor: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class LedgerDays:
    """How many days of a schedule's ledger are kept by default."""

    id: int
    days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """How many rows of each kind are older than their time."""

    succeeded_jobs: int
    cancelled_jobs: int
    dead_jobs: int
    dates: int
    results: int
    events: int


def find_row(connection: Connection, history: History, date_: Expected) -> DateRow | None:
    """What is recorded of an expected date, found by its instant or by its wall; of a fixed rule by its wall first."""
    wall = date_.occurrence.wall
    found = fetch(
        connection,
        DateRow,
        "occurrence_find",
        {
            "id": history.schedule_id,
            "logical_date": date_.occurrence.logical_date,
            "wall": wall and wall.replace(fold=0),
            "fold": wall is not None and wall.fold == 1,
            "revision": date_.revision,
            "by_wall": date_.revision in fixed_revisions(history),
            "tzdata": tz_version(),
        },
    )
    return found[0] if found else None


def find_row_at(connection: Connection, schedule_id: int, logical_date: datetime) -> DateRow | None:
    """What is recorded of an instant, expected or not."""
    parameters = {"id": schedule_id, "logical_date": logical_date, "wall": None, "fold": False, "revision": 0}
    found = fetch(connection, DateRow, "occurrence_find", parameters)
    return found[0] if found else None


def jobs_of_date(connection: Connection, schedule_id: int, logical_date: datetime) -> list[DateJob]:
    """The jobs of one date, by generation."""
    return fetch(connection, DateJob, "occurrence_jobs", {"id": schedule_id, "logical_date": logical_date})


def events_of_date(
    connection: Connection, schedule_id: int, logical_date: datetime, job_ids: Sequence[int]
) -> list[Noted]:
    """What was noted about one date and its jobs, in order."""
    return fetch(
        connection,
        Noted,
        "occurrence_events",
        {"id": schedule_id, "logical_date": logical_date, "job_ids": list(job_ids)},
    )


def pauses_at(connection: Connection, schedule_id: int, at: datetime) -> list[Pause]:
    """The pauses of a schedule that hold an instant."""
    return fetch(connection, Pause, "pauses_at", {"id": schedule_id, "at": at})


def default_ledger_days(connection: Connection) -> list[LedgerDays]:
    """How long each schedule's ledger is kept when nobody says otherwise."""
    return fetch(connection, LedgerDays, "ledger_days")


def prune(connection: Connection, what: str, parameters: Mapping[str, Any]) -> int:
    """One batch of ``prune_jobs``, ``prune_results``, ``prune_events`` or ``prune_ledger``; how many rows went."""
    count: int = fetch_value(connection, what, parameters)
    return count


def count_prunable(connection: Connection, before: Mapping[str, datetime | None], now: datetime) -> Prunable:
    """What pruning would delete: ``before`` has the times of ``succeeded``, ``cancelled``, ``dead``, ``ledger`` (None:
    each schedule's default), ``results`` and ``events``."""
    (found,) = fetch(connection, Prunable, "prune_count", {**before, "now": now})
    return found

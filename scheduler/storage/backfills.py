"""Backfills as stored objects, and the dates they fill: rows to models. Functions never commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from scheduler.core.ledger.history import Expected
from scheduler.storage.database import Connection
from scheduler.storage.packing import Packed, pack
from scheduler.storage.queries import execute, fetch, fetch_value
from scheduler.storage.schedules import date_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRow:
    """A backfill and where its jobs stand, counted by status."""

    id: int
    status: str
    created_at: datetime
    completed_at: datetime | None
    actor: str
    reason: str | None
    schedules: list[str] | None
    since: str
    until: str | None
    kinds: list[str]
    priority: int
    is_descending: bool
    is_rerun: bool
    max_active: int | None
    inserted: int
    already: int
    key_taken: int
    jobs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBackfill:
    """What is recorded of a backfill when it begins."""

    actor: str
    reason: str | None
    schedules: Sequence[str] | None
    since: str
    until: str | None
    kinds: Sequence[str]
    priority: int
    is_descending: bool
    is_overlap_allowed: bool
    is_rerun: bool
    max_active: int | None
    payload: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """The status of a backfill after pausing, resuming or cancelling it, and how many jobs that concerned."""

    outcome: str
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filled:
    filled: int
    left_ids: list[int] | None
    left_dates: list[datetime] | None
    left_reasons: list[str] | None


def begin_backfill(connection: Connection, new: NewBackfill) -> int:
    """Record a backfill; returns its id."""
    values = {
        name: getattr(new, name) for name in NewBackfill.__dataclass_fields__ if name not in ("schedules", "payload")
    }
    backfill_id: int = fetch_value(
        connection,
        "backfills_insert",
        {
            **values,
            "kinds": list(new.kinds),
            "schedules": None if new.schedules is None else list(new.schedules),
            "payload": None if new.payload is None else Jsonb(dict(new.payload)),
        },
    )
    return backfill_id


def packed_dates(dates: Sequence[tuple[int, Expected]]) -> Mapping[str, Packed]:
    """Dates of schedules as ``fill_dates`` takes them. Needs no connection."""
    return pack(date_columns(dates))


def fill_dates(
    connection: Connection, backfill_id: int, states: Sequence[str], dates: Mapping[str, Packed]
) -> dict[tuple[int, datetime], str]:
    """Make the jobs of these dates, counted with the backfill.

    Returns those that were left alone, by schedule and logical date: ``already``, ``unfinished`` or ``key_taken``.
    """
    (found,) = fetch(
        connection, _Filled, "occurrences_fill", {"backfill_id": backfill_id, "states": list(states), **dates}
    )
    reasons = found.left_reasons or []
    execute(
        connection,
        "backfills_count",
        {
            "id": backfill_id,
            "inserted": found.filled,
            "already": reasons.count("already") + reasons.count("unfinished"),
            "key_taken": reasons.count("key_taken"),
        },
    )
    return dict(zip(zip(found.left_ids or [], found.left_dates or [], strict=True), reasons, strict=True))


def complete_backfill(connection: Connection, backfill_id: int) -> None:
    """Every date was looked at."""
    execute(connection, "backfills_complete", {"id": backfill_id})


def list_backfills(connection: Connection, *, backfill_id: int | None = None, limit: int = 20) -> list[BackfillRow]:
    """Backfills, the newest first; only one with ``backfill_id``."""
    return fetch(connection, BackfillRow, "backfills_list", {"id": backfill_id, "limit": limit})


def act_on_backfill(
    connection: Connection, backfill_id: int, action: str, actor: str, reason: str | None
) -> BackfillOutcome:
    """``pause``, ``resume`` or ``cancel``; outcome ``not_found``, else the status it now has."""
    (result,) = fetch(
        connection,
        BackfillOutcome,
        "backfills_act",
        {"id": backfill_id, "action": action, "actor": actor, "reason": reason},
    )
    return result


def usual_duration(connection: Connection, schedule_id: int) -> timedelta | None:
    """How long a job of the schedule usually runs; None when none has succeeded yet."""
    duration: timedelta | None = fetch_value(connection, "jobs_usual_duration", {"id": schedule_id})
    return duration


def waive_date(connection: Connection, schedule_id: int, date: Expected, actor: str, reason: str) -> str:
    """Record a deliberate no: ``waived``, ``already_waived`` or ``enqueued``."""
    occurrence = date.occurrence
    outcome: str = fetch_value(
        connection,
        "occurrences_waive",
        {
            "id": schedule_id,
            "revision": date.revision,
            "logical_date": occurrence.logical_date,
            "due_at": occurrence.due_at,
            "wall": occurrence.wall and occurrence.wall.replace(fold=0),
            "fold": occurrence.wall is not None and occurrence.wall.fold == 1,
            "local_date": occurrence.local_date,
            "interval_start": occurrence.interval_start,
            "actor": actor,
            "reason": reason,
        },
    )
    return outcome

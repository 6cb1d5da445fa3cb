"""What operators look at: the state at a glance, jobs with their attempts, schedules with what comes next.

Reads only, one statement each; see ``sql/queries/status.sql``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler.storage.database import Connection
from scheduler.storage.queries import fetch
from scheduler.storage.unreadable import read_what_is_readable


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSummary:
    """``ready_since``: since when the longest waiting job could be claimed; ``due``: dates to decide right now.

    ``overdue``: dates that are not done by their ``finish_by``; ``ended_horizons``: schedules without planned dates.
    ``horizon_end``: up to where every schedule with further dates is planned.
    """

    now: datetime
    jobs: Mapping[str, int]
    occurrences: Mapping[str, int]
    ready_since: datetime | None
    expired_leases: int
    next_due_at: datetime | None
    due: int
    overdue: int
    ended_horizons: int
    horizon_end: datetime | None
    schedules: int
    paused_schedules: int
    workers: int
    host: str
    tzdata: str | None
    last_pass_at: datetime | None
    last_plan_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list; None lets everything pass. A schedule is found by its former names too."""

    status: str | None = None
    schedule: str | None = None
    queue: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job in a list."""

    id: int
    status: str
    job_type: str
    schedule: str | None
    logical_date: datetime | None
    queue: str
    priority: int
    origin: str
    attempt_count: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    progress: float | None
    progress_note: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    """A job as ``jobs show`` presents it."""

    id: int
    status: str
    job_type: str
    origin: str
    schedule: str | None
    logical_date: datetime | None
    generation: int
    interval_start: datetime | None
    interval_end: datetime | None
    covers_from: datetime | None
    revision: int | None
    queue: str
    priority: int
    attempt_count: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    worker: str | None
    lease_expires_at: datetime | None
    heartbeat_at: datetime | None
    progress: float | None
    progress_note: str | None
    cancel_requested_at: datetime | None
    waiting_for: str | None
    limit_key: str | None
    backfill_id: int | None
    replay_of: int | None
    idempotency_key: str | None
    timeout: timedelta | None
    payload: Any
    run: Any
    result: Any
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLine:
    """One spent try at a job."""

    number: int
    outcome: str
    worker: str
    started_at: datetime
    ended_at: datetime
    error: str | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """Something done to a job, and by whom."""

    at: datetime
    kind: str
    actor: str | None
    reason: str | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLine:
    """A schedule in a list; the ``last_`` fields are its newest decided date."""

    id: int
    name: str
    owner: str
    revision: int
    retired_at: datetime | None
    file: str
    job_type: str
    queue: str
    definition: Mapping[str, Any]
    paused_at: datetime | None
    is_pause_keeping: bool | None
    paused_by: str | None
    pause_reason: str | None
    next_due_at: datetime | None
    fires_again: bool
    last_logical_date: datetime | None
    last_state: str | None
    last_reason: str | None


def summary(connection: Connection) -> StatusSummary:
    """Counts and ages from one snapshot."""
    (found,) = fetch(connection, StatusSummary, "status_summary")
    return found


def list_jobs(connection: Connection, wanted: JobFilter) -> list[JobLine]:
    """Jobs that pass the filter, the newest first, at most ``wanted.limit``."""
    return fetch(
        connection,
        JobLine,
        "status_jobs_list",
        {"status": wanted.status, "schedule": wanted.schedule, "queue": wanted.queue, "limit": wanted.limit},
    )


def find_job(connection: Connection, job_id: int) -> JobDetails | None:
    """One job; None if there is none with that id. Its JSON may be ``Unreadable``, from here on for this connection."""
    read_what_is_readable(connection)
    return next(iter(fetch(connection, JobDetails, "status_job", {"id": job_id})), None)


def attempts_of(connection: Connection, job_id: int) -> list[AttemptLine]:
    """The spent tries at a job, in order."""
    return fetch(connection, AttemptLine, "status_attempts", {"id": job_id})


def events_of(connection: Connection, job_id: int) -> list[EventLine]:
    """What was done to a job, in order."""
    return fetch(connection, EventLine, "status_events", {"id": job_id})


@dataclass(frozen=True, slots=True)
class _Unfinished:
    name: str
    jobs: int


def unfinished_jobs(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """How many jobs of these schedules are not finished, by name; schedules without any are left out."""
    return {row.name: row.jobs for row in fetch(connection, _Unfinished, "status_unfinished", {"names": list(names)})}


def list_schedules(connection: Connection, name: str | None = None) -> list[ScheduleLine]:
    """Schedules by name, retired ones too; with ``name`` only that one, found by former names as well."""
    return fetch(connection, ScheduleLine, "status_schedules_list", {"name": name})

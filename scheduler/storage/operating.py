"""What people do to jobs and schedules, as calls of ``sql/functions/operate.sql`` and ``enqueue.sql``.

Each function is one statement and never commits; outcomes are the texts that those functions document.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import errors as pg

from scheduler.core.new_job import Enqueued
from scheduler.errors import ConfigError, StorageError
from scheduler.storage.database import Connection
from scheduler.storage.queries import fetch, fetch_value


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who asks, and why; recorded as an event."""

    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Triggered:
    """``outcome`` is ``enqueued``, with the job, or ``overlap`` (nothing was made), or ``not_found``."""

    outcome: str
    job_id: int | None


_STEERING = {
    "retry": "operate_retry",
    "hold": "operate_hold",
    "release": "operate_release",
    "cancel": "operate_cancel",
}


def steer_job(connection: Connection, action: str, job_id: int, by: By) -> str:
    """``retry``, ``hold``, ``release`` or ``cancel`` a job; the outcome, as ``sql/functions/operate.sql`` says."""
    outcome: str = fetch_value(connection, _STEERING[action], {"id": job_id, "actor": by.actor, "reason": by.reason})
    return outcome


def pause(connection: Connection, schedule: str, by: By, *, keep: bool) -> str:
    """``paused``, ``already_paused`` or ``not_found``. Takes the pass lock."""
    outcome: str = fetch_value(
        connection, "operate_pause", {"schedule": schedule, "keep": keep, "actor": by.actor, "reason": by.reason}
    )
    return outcome


def resume(connection: Connection, schedule: str, by: By) -> str:
    """``resumed``, ``not_paused`` or ``not_found``. Takes the pass lock."""
    outcome: str = fetch_value(
        connection, "operate_resume", {"schedule": schedule, "actor": by.actor, "reason": by.reason}
    )
    return outcome


def trigger(connection: Connection, schedule: str, by: By) -> Triggered:
    """Make a manual job of a schedule."""
    (made,) = fetch(
        connection, Triggered, "operate_trigger", {"schedule": schedule, "actor": by.actor, "reason": by.reason}
    )
    return made


def enqueue(connection: Connection, jobs: str) -> Enqueued:
    """Make the one job of a JSON array. Raises ConfigError for a limit that is not defined."""
    try:
        (made,) = fetch(connection, Enqueued, "jobs_enqueue_many", {"jobs": jobs})
    except StorageError as error:
        if isinstance(error.__cause__, pg.InvalidParameterValue):
            raise ConfigError(error.__cause__.diag.message_primary or str(error)) from error
        raise
    return made

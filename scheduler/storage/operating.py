"""What people do to jobs and schedules, as calls of ``sql/functions/operate.sql`` and ``enqueue.sql``.

Each function is one statement and never commits; outcomes are the texts that those functions document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import errors as pg

from scheduler.core.jobs.actions import JobSelection
from scheduler.core.jobs.new_job import Enqueued
from scheduler.errors import ConfigError, StorageError
from scheduler.storage.database import Connection
from scheduler.storage.queries import fetch, fetch_value, fetch_values


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


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What became of a job: an outcome of the action, or its unchanged state; and the new job of a replay."""

    id: int
    outcome: str
    replay_id: int | None = None


@dataclass(frozen=True, slots=True)
class MatchingJob:
    """A job that a selection means."""

    id: int
    status: str
    job_type: str


def act_on_jobs(connection: Connection, action: str, ids: Sequence[int], by: By) -> list[ActionOutcome]:
    """Do one of ``core.jobs.actions.ACTIONS`` to these jobs; what became of each, in their order.

    Locks the keys of all of them, then the jobs, until the end of the transaction: give it a few hundred at most.
    """
    parameters = {"action": action, "ids": list(ids), "actor": by.actor, "reason": by.reason}
    return fetch(connection, ActionOutcome, "operate_act", parameters)


def unknown_jobs(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Those of these ids that no job has, in order."""
    return fetch_values(connection, "operate_unknown", {"ids": list(ids)})


def matching_jobs(
    connection: Connection, selection: JobSelection, schedule_id: int | None, *, after: int, limit: int
) -> list[MatchingJob]:
    """Jobs that ``selection`` means, with ids behind ``after``, in their order. Locks nothing.

    The schedule is looked for by ``schedule_id``; the selection's own limit is left to the caller.
    """
    parameters = {
        "statuses": [status.value for status in selection.statuses],
        "queue": selection.queue,
        "job_type": selection.job_type,
        "schedule_id": schedule_id,
        "since": selection.since,
        "until": selection.until,
        "error": selection.error,
        "after": after,
        "limit": limit,
    }
    return fetch(connection, MatchingJob, "operate_matching", parameters)


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

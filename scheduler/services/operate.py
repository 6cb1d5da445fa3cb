"""What people do to jobs and schedules by hand: retry, pause, resume, trigger, enqueue; and finding the date they mean.

Each is one call of a function of ``sql/functions/operate.sql`` or ``enqueue.sql`` in a transaction of its own, which
records who and why. Nothing here changes how dates are decided.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from scheduler.core.history import Expected, History, expected_between
from scheduler.core.localtime import instant_of, local_clock
from scheduler.core.moments import instant_text
from scheduler.core.occurrences import next_occurrences, previous_occurrence
from scheduler.errors import ConfigError, NotFound
from scheduler.storage.database import Connection, transaction
from scheduler.storage.queries import fetch, fetch_value
from scheduler.storage.schedules import DefinitionCache, all_schedules, histories, schedule_ids
from scheduler.storage.status import find_job

CANDIDATES_SHOWN = 5
_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who asks, and why."""

    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Triggered:
    """``outcome`` is ``enqueued``, with the job, or ``overlap``: nothing was made."""

    outcome: str
    job_id: int | None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The job, and whether it is new: an idempotency key that exists gives the job that has it."""

    id: int
    is_created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job without a schedule. ``run_at`` is an instant; None means now."""

    job_type: str
    payload: Mapping[str, Any]
    queue: str = "default"
    priority: int = 100
    run_at: datetime | None = None
    idempotency_key: str | None = None
    limit_key: str | None = None
    max_attempts: int = 5
    timeout: timedelta | None = None


def retry_jobs(connection: Connection, ids: Sequence[int], by: By) -> dict[int, str]:
    """Make jobs run again, each in its own transaction: ``retried``, or the status of one that needs no retry.

    Raises NotFound, before anything is changed, if one of them does not exist.
    """
    for job_id in ids:
        if find_job(connection, job_id) is None:
            raise NotFound(f'there is no job {job_id}; "sched jobs list" shows them')
    outcomes: dict[int, str] = {}
    for job_id in ids:
        with transaction(connection):
            outcomes[job_id] = fetch_value(
                connection, "operate_retry", {"id": job_id, "actor": by.actor, "reason": by.reason}
            )
    return outcomes


def pause_schedule(connection: Connection, schedule: str, by: By, *, keep: bool) -> str:
    """Stop a schedule from firing, from now on: ``paused`` or ``already_paused``. Waits for a pass under way.

    Its dates are skipped, or with ``keep`` stay undecided until it is resumed. Raises NotFound.
    """
    with transaction(connection):
        return _outcome(connection, "operate_pause", schedule, by, {"keep": keep})


def resume_schedule(connection: Connection, schedule: str, by: By) -> str:
    """End the pause of a schedule: ``resumed`` or ``not_paused``. Raises NotFound."""
    with transaction(connection):
        return _outcome(connection, "operate_resume", schedule, by, {})


def trigger_schedule(connection: Connection, schedule: str, by: By) -> Triggered:
    """Make a job of a schedule now, without a logical date; its overlap policy holds. Raises NotFound."""
    with transaction(connection):
        (made,) = fetch(
            connection, Triggered, "operate_trigger", {"schedule": schedule, "actor": by.actor, "reason": by.reason}
        )
    if made.outcome == "not_found":
        raise _no_schedule(connection, schedule)
    return made


def enqueue_job(connection: Connection, job: NewJob) -> Enqueued:
    """Make one job. Raises ConfigError for a limit that is not defined."""
    with transaction(connection):
        (made,) = fetch(
            connection,
            Enqueued,
            "operate_enqueue",
            {
                "job_type": job.job_type,
                "payload": Jsonb(dict(job.payload)),
                "queue": job.queue,
                "priority": job.priority,
                "run_at": job.run_at,
                "idempotency_key": job.idempotency_key,
                "limit_key": job.limit_key,
                "max_attempts": job.max_attempts,
                "timeout": job.timeout,
            },
        )
    return made


def find_date(connection: Connection, schedule: str, moment: date | datetime) -> datetime:
    """The one logical date of a schedule that a person means by a local day, a local time or an instant.

    Raises NotFound for an unknown schedule, ConfigError that lists the candidates if no date or several fit.
    """
    history = _history(connection, schedule)
    found = _matching(history, moment)
    if len(found) == 1:
        return found[0].occurrence.logical_date
    if found:
        shown = _listed(history, [date.occurrence.logical_date for date in found[:CANDIDATES_SHOWN]])
        more = f" and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
        raise ConfigError(f"{_shown(moment)} is ambiguous: {schedule} has {shown}{more}; write one of these instants")
    near = _nearest(history, moment)
    hint = f"the nearest are {_listed(history, near)}" if near else "it has no dates around it"
    raise ConfigError(f"{schedule} has no date {_shown(moment)}; {hint}")


def _outcome(connection: Connection, query: str, schedule: str, by: By, more: Mapping[str, Any]) -> str:
    outcome: str = fetch_value(
        connection, query, {"schedule": schedule, "actor": by.actor, "reason": by.reason, **more}
    )
    if outcome == "not_found":
        raise _no_schedule(connection, schedule)
    return outcome


def _no_schedule(connection: Connection, name: str) -> NotFound:
    known = [row.name for row in all_schedules(connection) if row.retired_at is None]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else '"sched schedules list" shows them'
    return NotFound(f'there is no schedule "{name}"; {hint}')


def _history(connection: Connection, schedule: str) -> History:
    schedule_id = schedule_ids(connection, [schedule]).get(schedule)
    if schedule_id is None:
        raise _no_schedule(connection, schedule)
    return histories(connection, [schedule_id], DefinitionCache())[schedule_id]


def _matching(history: History, moment: date | datetime) -> list[Expected]:
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return expected_between(history, moment - _TICK, moment)
    start, end = _around(history, moment)
    dates = expected_between(history, start, end)
    if not isinstance(moment, datetime):
        return [date for date in dates if date.occurrence.local_date == moment]
    zone = local_clock(_timezone(history)).zone
    return [
        date
        for date in dates
        if moment in (date.occurrence.wall, date.occurrence.logical_date.astimezone(zone).replace(tzinfo=None))
    ]


def _around(history: History, moment: date | datetime) -> tuple[datetime, datetime]:
    """A range that holds every date a local day or a local time can stand for."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment, moment
    wall = moment if isinstance(moment, datetime) else datetime.combine(moment, time())
    at = instant_of(local_clock(_timezone(history)), wall)
    return at - _DAY, at + 2 * _DAY


def _nearest(history: History, moment: date | datetime) -> list[datetime]:
    timing = history.spans[-1].timing
    start, end = _around(history, moment)
    at = start + (end - start) / 3
    before = previous_occurrence(timing, at)
    found = [before] if before else []
    found += next_occurrences(timing, at, 2)
    return [date.logical_date for date in found if date.logical_date > history.floor]


def _timezone(history: History) -> str:
    return history.spans[-1].timing.timezone


def _listed(history: History, dates: Sequence[datetime]) -> str:
    zone = local_clock(_timezone(history)).zone
    return ", ".join(
        instant_text(at)
        if _timezone(history) == "UTC"
        else f"{instant_text(at)} ({at.astimezone(zone):%Y-%m-%d %H:%M} local)"
        for at in dates
    )


def _shown(moment: date | datetime) -> str:
    if isinstance(moment, datetime):
        return instant_text(moment) if moment.tzinfo is UTC else moment.isoformat()
    return str(moment)

"""What people do to jobs and schedules by hand: retry, pause, resume, trigger, enqueue; and finding the date they mean.

Each is one call of a function of the database in a transaction of its own, which records who and why. Nothing here
changes how dates are decided.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from scheduler.core.history import Expected, History, expected_between
from scheduler.core.localtime import instant_of, local_clock
from scheduler.core.moments import instant_text
from scheduler.core.occurrences import next_occurrences, previous_occurrence
from scheduler.errors import ConfigError, NotFound
from scheduler.storage import operating
from scheduler.storage.database import Connection, transaction
from scheduler.storage.operating import By, Enqueued, NewJob, Triggered
from scheduler.storage.schedules import DefinitionCache, all_schedules, histories, schedule_ids
from scheduler.storage.status import find_job

CANDIDATES_SHOWN = 5
_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)


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
            outcomes[job_id] = operating.retry(connection, job_id, by)
    return outcomes


def pause_schedule(connection: Connection, schedule: str, by: By, *, keep: bool) -> str:
    """Stop a schedule from firing, from now on: ``paused`` or ``already_paused``. Waits for a pass under way.

    Its dates are skipped, or with ``keep`` stay undecided until it is resumed. Raises NotFound.
    """
    with transaction(connection):
        outcome = operating.pause(connection, schedule, by, keep=keep)
    return _found(connection, schedule, outcome)


def resume_schedule(connection: Connection, schedule: str, by: By) -> str:
    """End the pause of a schedule: ``resumed`` or ``not_paused``. Raises NotFound."""
    with transaction(connection):
        outcome = operating.resume(connection, schedule, by)
    return _found(connection, schedule, outcome)


def trigger_schedule(connection: Connection, schedule: str, by: By) -> Triggered:
    """Make a job of a schedule now, without a logical date; its overlap policy holds. Raises NotFound."""
    with transaction(connection):
        made = operating.trigger(connection, schedule, by)
    _found(connection, schedule, made.outcome)
    return made


def enqueue_job(connection: Connection, job: NewJob) -> Enqueued:
    """Make one job. Raises ConfigError for a limit that is not defined."""
    with transaction(connection):
        return operating.enqueue(connection, job)


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


def _found(connection: Connection, schedule: str, outcome: str) -> str:
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

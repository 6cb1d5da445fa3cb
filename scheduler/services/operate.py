"""What people do to jobs and schedules by hand: retry, replay, pause, resume, trigger, waive, find a date.

Each is one call of a function of the database in a transaction of its own, which records who and why; many jobs are
acted on in several. Nothing here changes how dates are decided.
"""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from scheduler.core.jobs.actions import JobSelection
from scheduler.core.ledger.date_search import matching_dates, nearest_dates, shown_dates, shown_moment
from scheduler.core.ledger.history import Expected, History
from scheduler.errors import ConfigError, NotFound
from scheduler.storage import operating
from scheduler.storage.backfills import waive_date as storage_waive
from scheduler.storage.database import Connection, transaction
from scheduler.storage.ledger import find_row
from scheduler.storage.operating import ActionOutcome, By, MatchingJob, Triggered
from scheduler.storage.schedules import DefinitionCache, all_schedules, histories, meet_tzdata, schedule_ids

CANDIDATES_SHOWN = 5
BATCH = 500
"""How many jobs one transaction acts on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waived:
    """``outcome`` is ``waived``, ``already_waived``, or ``enqueued`` for a date that became a job and stays one."""

    logical_date: datetime
    outcome: str


def act_on_jobs(connection: Connection, action: str, ids: Sequence[int], by: By) -> list[ActionOutcome]:
    """Do one of ``core.jobs.actions.ACTIONS`` to these jobs, ``BATCH`` in a transaction; what became of each.

    Raises NotFound, before anything is changed, if one of them does not exist.
    """
    wanted = list(dict.fromkeys(ids))
    for job_id in operating.unknown_jobs(connection, wanted):
        raise NotFound(f'there is no job {job_id}; "sched jobs list" shows them')
    results: list[ActionOutcome] = []
    for start in range(0, len(wanted), BATCH):
        with transaction(connection):
            results += operating.act_on_jobs(connection, action, wanted[start : start + BATCH], by)
    return results


def count_matching(connection: Connection, selection: JobSelection) -> Counter[tuple[str, str]]:
    """How many jobs a selection means, by state and job type. Raises NotFound for an unknown schedule."""
    return Counter((job.status, job.job_type) for page in _pages(connection, selection) for job in page)


def act_on_matching(
    connection: Connection, action: str, selection: JobSelection, by: By, done: Callable[[int], object]
) -> Counter[str]:
    """Do an action to the jobs that a selection means, the oldest first; how many came to which outcome.

    ``BATCH`` in a transaction, so that slots are not kept from workers for long; ``done`` hears how many are behind.
    A job that has changed since it was found is judged as it is now. Stopped in the middle, what is done stays done.
    Raises NotFound for an unknown schedule.
    """
    outcomes: Counter[str] = Counter()
    for page in _pages(connection, selection):
        with transaction(connection):
            results = operating.act_on_jobs(connection, action, [job.id for job in page], by)
        outcomes.update(each.outcome for each in results)
        done(outcomes.total())
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


def find_date(connection: Connection, schedule: str, moment: date | datetime) -> datetime:
    """The one logical date of a schedule that a person means by a local day, a local time or an instant.

    Raises NotFound for an unknown schedule, ConfigError that lists the candidates if no date or several fit.
    """
    return _find(_history(connection, schedule), schedule, moment).occurrence.logical_date


def waive_date(connection: Connection, schedule: str, moment: date | datetime, by: By) -> Waived:
    """Record that a date will not run, and why: also one that is missed, skipped, missing or to come.

    A date that became a job stays as it is. Waits for a pass under way. Raises NotFound, and ConfigError for a moment
    that is not one date.
    """
    history = _history(connection, schedule)
    found = _find(history, schedule, moment)
    row = find_row(connection, history, found)
    if row is not None:  # an earlier tz database may have put it at another instant
        found = found._replace(occurrence=found.occurrence._replace(logical_date=row.logical_date))
    meet_tzdata(connection)
    with transaction(connection):
        outcome = storage_waive(connection, history.schedule_id, found, by.actor, by.reason or "")
    return Waived(logical_date=found.occurrence.logical_date, outcome=outcome)


def _pages(connection: Connection, selection: JobSelection) -> Iterator[list[MatchingJob]]:
    """The jobs that a selection means, in id order, at most ``BATCH`` at a time; each is met once."""
    schedule_id = None
    if selection.schedule is not None:
        schedule_id = schedule_ids(connection, [selection.schedule]).get(selection.schedule)
        if schedule_id is None:
            raise _no_schedule(connection, selection.schedule)
    after, left = 0, sys.maxsize if selection.limit is None else selection.limit
    while page := operating.matching_jobs(connection, selection, schedule_id, after=after, limit=min(BATCH, left)):
        yield page
        after, left = page[-1].id, left - len(page)


def _find(history: History, schedule: str, moment: date | datetime) -> Expected:
    found = matching_dates(history, moment)
    if len(found) == 1:
        return found[0]
    if found:
        shown = shown_dates(history, [date.occurrence.logical_date for date in found[:CANDIDATES_SHOWN]])
        more = f" and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
        raise ConfigError(
            f"{shown_moment(moment)} is ambiguous: {schedule} has {shown}{more}; write one of these instants"
        )
    near = nearest_dates(history, moment)
    hint = f"the nearest are {shown_dates(history, near)}" if near else "it has no dates around it"
    raise ConfigError(f"{schedule} has no date {shown_moment(moment)}; {hint}")


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

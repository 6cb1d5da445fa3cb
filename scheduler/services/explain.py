"""Explain: the whole story of one date of a schedule, in order, from the ledger. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from typing import Any

from scheduler.core.jobs.progress import describe_progress
from scheduler.core.ledger.date_search import (
    Moment,
    matching_dates,
    nearest_dates,
    shown_dates,
    shown_moment,
    timezone_of,
)
from scheduler.core.ledger.history import Expected, History, RevisionSpan, revision_at
from scheduler.core.models import CalendarRule
from scheduler.core.time.describe import describe_rule, notes
from scheduler.core.time.durations import format_duration
from scheduler.core.time.localtime import local_clock
from scheduler.core.time.moments import instant_text
from scheduler.errors import ConfigError, NotFound
from scheduler.storage.backfills import list_backfills
from scheduler.storage.database import FAR_PAST, Connection, database_now
from scheduler.storage.ledger import (
    DateJob,
    DateRow,
    Noted,
    events_of_date,
    find_row,
    find_row_at,
    jobs_of_date,
    pauses_at,
)
from scheduler.storage.schedules import DefinitionCache, all_schedules, histories, schedule_ids
from scheduler.storage.status import attempts_of

CANDIDATES_SHOWN = 5
NOON = time(12)

_REASONS = {
    "coalesced": "a later date was due as well, and catchup: latest runs only the newest",
    "late": "it was found later than its grace, and catchup: none leaves late dates out",
    "too_old": "it was older than max_age when it was looked at",
    "overlap": "an earlier job of the schedule was unfinished",
    "overlap_full": "1,000 jobs of the schedule were waiting already",
    "paused": "the schedule was paused when it was due",
    "key_taken": "its idempotency key belongs to another job",
    "error": "it could not be enqueued; the event says why",
    "due_before_apply": "the definition that expects it was applied after it would have been due",
    "backfill": "a backfill asked for it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened or holds, with the instant where there is one."""

    kind: str
    text: str
    at: datetime | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The story of a date; ``logical_date`` is None for a moment at which nothing was expected.

    What was wanted comes first, then what happened, by time. ``timezone`` is the schedule's.
    """

    schedule: str
    timezone: str
    logical_date: datetime | None
    steps: Sequence[Step]


def explain(connection: Connection, schedule: str, moment: Moment) -> Explanation:
    """Why a date did or did not run, in order: definition, plan, decision, jobs, attempts, and who touched it.

    Answers for any moment, also one at which nothing was ever expected. Raises NotFound for an unknown schedule,
    ConfigError that lists the candidates when several dates fit.
    """
    schedule_id = schedule_ids(connection, [schedule]).get(schedule)
    if schedule_id is None:
        raise NotFound(f'there is no schedule "{schedule}"; "sched schedules list" shows them')
    history = histories(connection, [schedule_id], DefinitionCache())[schedule_id]
    found = matching_dates(history, moment)
    if len(found) > 1:
        candidates = shown_dates(history, [date.occurrence.logical_date for date in found[:CANDIDATES_SHOWN]])
        raise ConfigError(f"{shown_moment(moment)} is ambiguous: {schedule} has {candidates}; write one of these")
    if not found:
        return _unexpected(connection, history, moment)
    date = found[0]
    row = find_row(connection, history, date)
    happened = list(_decision(connection, history, date, row))
    if row is not None:
        happened += _jobs(connection, schedule_id, row)
    return Explanation(
        schedule=history.name,
        timezone=timezone_of(history),
        logical_date=date.occurrence.logical_date,
        steps=[*_definition(connection, history, date), *_date(history, date), *_by_time(happened)],
    )


def _by_time(steps: Sequence[Step]) -> list[Step]:
    """The steps in the order of their instants; one without an instant stays behind the step it follows."""
    at, timed = FAR_PAST, []
    for step in steps:
        at = step.at or at
        timed.append((at, step))
    return [step for _, step in sorted(timed, key=lambda each: each[0])]


def _definition(connection: Connection, history: History, date: Expected) -> Iterator[Step]:
    span = next(span for span in history.spans if span.revision == date.revision)
    file = next(row.file for row in all_schedules(connection) if row.id == history.schedule_id)
    yield Step(
        kind="definition",
        at=span.valid_from,
        text=f"revision {span.revision} of {history.name} ({file}): {describe_rule(span.timing)}",
        details={"revision": span.revision, "file": file},
    )


def _date(history: History, date: Expected) -> Iterator[Step]:
    occurrence = date.occurrence
    local = occurrence.logical_date.astimezone(local_clock(timezone_of(history)).zone)
    yield Step(
        kind="expected",
        at=occurrence.logical_date,
        text=f"expected for {local:%Y-%m-%d %H:%M:%S %Z (UTC%z)}, the data since "
        f"{instant_text(occurrence.interval_start)}",
        details={"local": local.isoformat(), "interval_start": instant_text(occurrence.interval_start)},
    )
    span = next(span for span in history.spans if span.revision == date.revision)
    for note in notes(span.timing, occurrence):
        yield Step(kind="note", text=note)
    if occurrence.due_at != occurrence.logical_date:
        yield Step(kind="due", at=occurrence.due_at, text="due then, moved by jitter or by a calendar")


def _decision(connection: Connection, history: History, date: Expected, row: DateRow | None) -> Iterator[Step]:
    due_at = date.occurrence.due_at if row is None else row.due_at
    for pause in pauses_at(connection, history.schedule_id, due_at):
        until = "still open" if pause.until_at is None else f"until {instant_text(pause.until_at)}"
        reason = f": {pause.reason}" if pause.reason else ""
        yield Step(kind="pause", at=pause.from_at, text=f"paused by {pause.actor}, {until}{reason}")
    if row is None:
        yield _without_row(connection, history, date)
        return
    if row.logical_date != date.occurrence.logical_date:
        yield Step(
            kind="note",
            at=row.logical_date,
            text="recorded at this instant, where an earlier release of the tz database put the same local time",
        )
    if row.decided_at is None:
        now = database_now(connection)
        state = f"due in {format_duration(row.due_at - now)}" if row.due_at > now else "due and not decided yet"
        yield Step(kind="planned", at=row.due_at, text=f"planned: {state}")
        return
    reason = f" ({row.reason}: {_REASONS[row.reason]})" if row.reason in _REASONS else ""
    reason = f": {row.reason}" if row.reason and not reason else reason
    yield Step(
        kind="decided",
        at=row.decided_at,
        text=f"{row.state}{reason} by {row.decided_by}, {_lateness(row.decided_at, due_at)}",
        details={"state": row.state, "reason": row.reason, "by": row.decided_by},
    )


def _lateness(decided_at: datetime, due_at: datetime) -> str:
    if decided_at < due_at:
        return f"{format_duration(due_at - decided_at)} before it was due"
    return f"{format_duration(decided_at - due_at)} after it was due"


def _without_row(connection: Connection, history: History, date: Expected) -> Step:
    now = database_now(connection)
    if date.occurrence.due_at > now:
        return Step(kind="planned", at=date.occurrence.due_at, text="to come; not planned yet")
    if date.occurrence.logical_date <= history.applied_at:
        text = f'missing: the schedule was first applied {instant_text(history.applied_at)}; "sched backfill" fills it'
    else:
        text = 'missing: nothing planned or fired it; "sched backfill" fills it'
    return Step(kind="missing", text=text)


def _jobs(connection: Connection, schedule_id: int, row: DateRow) -> Iterator[Step]:
    jobs = jobs_of_date(connection, schedule_id, row.logical_date)
    for job in jobs:
        yield from _job(connection, job)
    if row.state == "enqueued" and not jobs:
        yield Step(kind="job", text=f"its job {row.job_id} was pruned")
    for event in events_of_date(connection, schedule_id, row.logical_date, [job.id for job in jobs]):
        yield _event(event)


def _job(connection: Connection, job: DateJob) -> Iterator[Step]:
    generation = f", generation {job.generation}" if job.generation > 1 else ""
    covers = f", covers the data since {instant_text(job.covers_from)}" if job.covers_from else ""
    yield Step(
        kind="job",
        at=job.created_at,
        text=f"job {job.id} in queue {job.queue} ({_origin(connection, job)}{generation}){covers}, "
        f"key {job.idempotency_key}",
        details={"job_id": job.id, "status": job.status},
    )
    for attempt in attempts_of(connection, job.id):
        error = f": {attempt.error}" if attempt.error else ""
        seconds = (attempt.ended_at - attempt.started_at).total_seconds()
        yield Step(
            kind="attempt",
            at=attempt.started_at,
            text=f"attempt {attempt.number} by {attempt.worker} {attempt.outcome} after {seconds:.3f} s{error}",
            details={"number": attempt.number, "outcome": attempt.outcome},
        )
    waits = f" for {job.waiting_for}" if job.waiting_for else ""
    done = describe_progress(job.progress, job.progress_note) if job.status == "running" else None
    far = f", {done}" if done else ""
    yield Step(kind="job_status", at=job.completed_at, text=f"job {job.id} is {job.status}{waits}{far}")
    if job.result_at is not None:
        by = "" if job.produced_by == job.id else f", made by job {job.produced_by}"
        yield Step(kind="result", at=job.result_at, text=f"its result is kept{by}")


def _origin(connection: Connection, job: DateJob) -> str:
    """Who wanted a job: ``schedule``, ``manual``, or a backfill by its number with the reason somebody gave."""
    if job.backfill_id is None:
        return job.origin
    reason = next((row.reason for row in list_backfills(connection, backfill_id=job.backfill_id)), None)
    return f"backfill {job.backfill_id}" + (f": {reason}" if reason else "")


def _event(event: Noted) -> Step:
    who = f" by {event.actor}" if event.actor else ""
    reason = f": {event.reason}" if event.reason else ""
    was = f", was {event.details['was']}" if event.details.get("was") else ""
    return Step(
        kind="event", at=event.at, text=f"{event.kind.replace('_', ' ')}{who}{was}{reason}", details=dict(event.details)
    )


def _unexpected(connection: Connection, history: History, moment: Moment) -> Explanation:
    steps = [Step(kind="not_expected", text=f"not expected: {_why_not(history, moment)}")]
    near = nearest_dates(history, moment)
    if near:
        steps.append(Step(kind="note", text=f"the nearest dates are {shown_dates(history, near)}"))
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        row = find_row_at(connection, history.schedule_id, moment)
        if row is not None:
            steps.append(Step(kind="decided", at=row.decided_at, text=f"but it is in the ledger: {row.state}"))
            steps += _jobs(connection, history.schedule_id, row)
    return Explanation(schedule=history.name, timezone=timezone_of(history), logical_date=None, steps=steps)


def _why_not(history: History, moment: Moment) -> str:
    without_floor = replace(history, ledger_from=None)
    if history.ledger_from is not None and matching_dates(without_floor, moment):
        return f"the ledger was pruned up to {instant_text(history.ledger_from)}"
    start = history.spans[-1].timing.start
    opened = _changed(history, start=None)
    if matching_dates(replace(opened, applied_at=datetime.min.replace(tzinfo=history.applied_at.tzinfo)), moment):
        began = history.applied_at if start is None else start
        return f"the schedule began on {shown_dates(history, [began])}"
    calendar = _excluding(history, moment)
    if calendar is not None:
        return f"the calendar {calendar} excludes that day"
    span = revision_at(history, _instant(history, moment))
    if span is None:
        return "the schedule was retired then"
    if span.timing.end is not None and _instant(history, moment) >= span.timing.end:
        return f"the schedule ended on {shown_dates(history, [span.timing.end])}"
    return f"the rule in force has no date {shown_moment(moment)} ({describe_rule(span.timing)})"


def _excluding(history: History, moment: Moment) -> str | None:
    """The name of the calendar that takes a date away from this moment; None if none does."""
    found = matching_dates(_changed(history, calendar=None), moment)
    for date in found:
        span = next(span for span in history.spans if span.revision == date.revision)
        calendar: CalendarRule | None = span.timing.calendar
        for days in calendar.excluded if calendar else ():
            day = date.occurrence.local_date
            if day in days.dates or day.weekday() in days.weekdays:
                return days.name
    return None


def _changed(history: History, **changes: Any) -> History:
    spans: list[RevisionSpan] = [replace(span, timing=replace(span.timing, **changes)) for span in history.spans]
    return replace(history, spans=tuple(spans))


def _instant(history: History, moment: Moment) -> datetime:
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment
    wall = moment if isinstance(moment, datetime) else datetime.combine(moment, NOON)
    return wall.replace(tzinfo=local_clock(timezone_of(history)).zone)

"""Warnings about definitions that are valid but may not mean what their author thinks.

Pure: definitions and a moment in, warnings out. Errors are found by ``files``; ``services.definitions`` adds file
and line to what is found here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from scheduler.core.models import (
    EPOCH,
    At,
    Cron,
    Definition,
    DefinitionSet,
    DstRule,
    Every,
    GapRule,
    Occurrence,
    RepeatRule,
    Rrule,
    Timing,
)
from scheduler.core.time.cron import (
    CronFields,
    cron_warnings,
    croniter_dates,
    croniter_reading,
    croniter_reads_alike,
    parse_cron,
)
from scheduler.core.time.durations import format_duration
from scheduler.core.time.localtime import Stretch, local_clock, minute_of, wall_of
from scheduler.core.time.moments import instant_text
from scheduler.core.time.occurrences import never_fires, next_occurrences, occurrences_between, previous_occurrence
from scheduler.core.time.rrule import parse_recurrence
from scheduler.core.time.rrule_check import first_difference

CROWD = 20
"""From how many schedules in one minute on a proposal is made to spread them."""

SHORT_GRACE = timedelta(seconds=10)
"""A ticker that is restarted is away for longer than this."""

CLOCK_CHANGES_AHEAD = timedelta(days=400)

_DENSE = 96
"""A schedule with more dates a day cannot be spread, and is not counted as part of a crowd."""

_PEER_DATES = 6
"""How many dates of a cron expression are compared with croniter's."""

_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_TICK = timedelta(microseconds=1)
_SPREAD = re.compile(r"(?<![a-z])h(?![a-z])", re.IGNORECASE)
_RULE_KEYS: dict[type, str] = {Cron: "cron", Every: "every", Rrule: "rrule", At: "at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LintWarning:
    """Something to look at: the schedule, the field of the file it is about (``catchup.grace``), and a sentence."""

    schedule: str
    field: str
    message: str


def lint_set(definitions: DefinitionSet, now: datetime) -> list[LintWarning]:
    """All warnings about a folder: those of each definition, in order, then those about many together."""
    linter = _Linter(now=now)
    found = [warning for definition in definitions.schedules.values() for warning in linter.warnings(definition)]
    return found + _crowds(definitions, now)


def lint_definition(definition: Definition, now: datetime) -> list[LintWarning]:
    """The warnings about one definition, judged at ``now``; dates named are the next ones."""
    return list(_Linter(now=now).warnings(definition))


def rule_key(timing: Timing) -> str:
    """The key of the file that holds the rule: cron, every, rrule or at."""
    return _RULE_KEYS[type(timing.rule)]


@dataclass(slots=True, kw_only=True)
class _Linter:
    """Remembers what was found about timings, since many schedules share them."""

    now: datetime
    about_timings: dict[Timing, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def warnings(self, definition: Definition) -> Iterator[LintWarning]:
        found = [*self._about_timing(definition.timing), *_about_policies(definition)]
        for key, message in found:
            yield LintWarning(schedule=definition.name, field=key, message=message)

    def _about_timing(self, timing: Timing) -> tuple[tuple[str, str], ...]:
        shared = replace(timing, name=timing.name if _is_spread(timing) else "", jitter=timedelta(0))
        if shared not in self.about_timings:
            self.about_timings[shared] = tuple(_about_timing(shared, self.now))
        return self.about_timings[shared]


def _about_timing(timing: Timing, now: datetime) -> Iterator[tuple[str, str]]:
    key = rule_key(timing)
    yield from ((key, message) for message in _about_rule(timing, now))
    if never_fires(timing):
        yield key, "never fires: no date matches, and every list will show it as never"
    elif not next_occurrences(timing, now, 1):
        yield key, f"fires no more: {_last_date(timing, now)}"
    elif isinstance(timing.rule, Cron | Rrule | At):
        yield from ((key, message) for message in _clock_changes(timing, now))


def _about_rule(timing: Timing, now: datetime) -> Iterator[str]:
    """What surprises in the text of a rule, whatever its zone; and where other tools read it differently."""
    if isinstance(timing.rule, Cron):
        fields = parse_cron(timing.rule.expression, timing.name)
        yield from cron_warnings(fields)
        if not _is_spread(timing):
            yield from _beside_croniter(fields, now)
    elif isinstance(timing.rule, Rrule):
        yield from _beside_dateutil(timing.rule, timing.timezone)


def _beside_croniter(fields: CronFields, now: datetime) -> Iterator[str]:
    """The first date that only one of the two finds, in UTC, where both find dates."""
    theirs = None if croniter_reads_alike(fields) else croniter_dates(fields.expression, now, _PEER_DATES)
    if theirs is None:
        return
    bare = Timing(name="", rule=Cron(expression=fields.expression))
    ours = [date.logical_date for date in next_occurrences(bare, now, _PEER_DATES)]
    differing = set(ours) ^ set(theirs)
    if differing:
        at = min(differing)
        who = "there and not here" if at in theirs else "here and not there"
        yield (
            f"croniter, and tools that use it, find other dates: {croniter_reading(fields)}, so that in UTC "
            f"{instant_text(at)} is a date {who}"
        )


def _beside_dateutil(rule: Rrule, timezone: str) -> Iterator[str]:
    """The first local time of the RRULE that only one of the two names."""
    different = first_difference(parse_recurrence(rule.text, local_clock(timezone).zone))
    if different is None:
        return
    ours, theirs = different
    is_theirs = ours is None or (theirs is not None and theirs < ours)
    at = theirs if is_theirs else ours
    who = "there and not here" if is_theirs else "here and not there"
    yield f"dateutil, and tools that use it, read this RRULE differently: {at:%Y-%m-%d %H:%M} is a date {who}"


def _is_spread(timing: Timing) -> bool:
    """Whether the name decides the dates, by an ``H`` in the expression."""
    return isinstance(timing.rule, Cron) and _SPREAD.search(timing.rule.expression) is not None


def _last_date(timing: Timing, now: datetime) -> str:
    last = previous_occurrence(timing, now + _TICK)
    return f"its last date was {instant_text(last.logical_date)}" if last else "it has ended"


def _clock_changes(timing: Timing, now: datetime) -> Iterator[str]:
    """The next gap and the next repeated hour that a fixed local time of the schedule falls into."""
    clock = local_clock(timing.timezone)
    is_told: set[bool] = set()
    for stretch in clock.changes(minute_of(now), minute_of(now + CLOCK_CHANGES_AHEAD)):
        is_gap = stretch.skipped > 0
        if is_gap in is_told:
            continue
        message = _gap_message(timing, stretch) if is_gap else _repeat_message(timing, stretch)
        if message:
            is_told.add(is_gap)
            yield message


def _gap_message(timing: Timing, stretch: Stretch) -> str | None:
    resumes = wall_of(stretch.start + stretch.offset)
    at = EPOCH + stretch.start * _MINUTE
    made_up = replace(timing, dst=DstRule(gap=GapRule.RUN_AFTER, overlap=timing.dst.overlap))
    swallowed = [date for date in occurrences_between(made_up, at - _TICK, at) if date.wall and date.wall < resumes]
    if not swallowed or swallowed[0].wall is None:
        return None
    wall, begins = swallowed[0].wall, resumes - stretch.skipped * _MINUTE
    runs = timing.dst.gap is GapRule.RUN_AFTER
    outcome = f"fires at {_clock_text(resumes)}" if runs else "does not fire"
    return (
        f"the clock in {timing.timezone} skips {_clock_text(wall)} on {wall.date()}: it {outcome} "
        f"(dst.gap: {timing.dst.gap.value}); a time outside {_clock_text(begins)} to {_clock_text(resumes)} is safe"
    )


def _repeat_message(timing: Timing, stretch: Stretch) -> str | None:
    at = EPOCH + stretch.start * _MINUTE
    first, both = (
        occurrences_between(replace(timing, dst=DstRule(gap=timing.dst.gap, overlap=rule)), at - _TICK, at + _DAY / 2)
        for rule in (RepeatRule.FIRST, RepeatRule.BOTH)
    )
    usual = {date.logical_date for date in first}
    repeated: list[Occurrence] = [date for date in both if date.logical_date not in usual]
    if not repeated or repeated[0].wall is None:
        return None
    wall, begins = repeated[0].wall, wall_of(stretch.start + stretch.offset)
    ends = wall_of(stretch.start + local_clock(timing.timezone).stretch_at(stretch.start - 1).offset)
    outcome = {RepeatRule.FIRST: "once, the first time", RepeatRule.LAST: "once, the last time"}
    return (
        f"the clock in {timing.timezone} shows {_clock_text(wall)} twice on {wall.date()}: it fires "
        f"{outcome.get(timing.dst.overlap, 'both times')} (dst.overlap: {timing.dst.overlap.value}); "
        f"a time outside {_clock_text(begins)} to {_clock_text(ends)} is safe"
    )


def _clock_text(wall: datetime) -> str:
    return f"{wall:%H:%M}"


def _about_policies(definition: Definition) -> Iterator[tuple[str, str]]:
    timing, catchup = definition.timing, definition.catchup
    if catchup.grace < SHORT_GRACE:
        yield (
            "catchup.grace",
            f"{format_duration(catchup.grace)} is shorter than a restart of the ticker takes: dates will be found late "
            f"and fall under catchup: {catchup.policy.value}",
        )
    if definition.timeout and definition.finish_by and definition.timeout > definition.finish_by:
        yield (
            "timeout",
            f"one attempt may take {format_duration(definition.timeout)}, longer than finish_by "
            f"({format_duration(definition.finish_by)}) allows for all",
        )
    if "{schedule}" not in definition.idempotency_key:
        yield (
            "idempotency_key",
            "has no {schedule}: another schedule with the same key on the same date will count as already done",
        )
    if timing.jitter and isinstance(timing.rule, Every) and timing.jitter > timing.rule.interval:
        yield (
            "jitter",
            f"{format_duration(timing.jitter)} is longer than the interval ({format_duration(timing.rule.interval)}): "
            "dates can become due out of order",
        )


def _crowds(definitions: DefinitionSet, now: datetime) -> list[LintWarning]:
    """One warning about the busiest minute of the next day, at its first schedule."""
    names: dict[datetime, list[str]] = defaultdict(list)
    dates: dict[Timing, list[datetime]] = {}
    for definition in definitions.schedules.values():
        timing = definition.timing
        if timing.jitter or _is_spread(timing):
            continue
        shared = replace(timing, name="")
        if shared not in dates:
            found = occurrences_between(shared, now, now + _DAY, _DENSE + 1)
            dates[shared] = [date.due_at.replace(second=0) for date in found] if len(found) <= _DENSE else []
        for minute in dict.fromkeys(dates[shared]):
            names[minute].append(definition.name)
    busiest = max(names, key=lambda minute: len(names[minute]), default=None)
    if busiest is None or len(names[busiest]) < CROWD:
        return []
    first = definitions.schedules[names[busiest][0]]
    message = (
        f"{len(names[busiest]):,} schedules are due in the same minute ({instant_text(busiest)}): "
        f"{_spreading_proposal(first.timing)}"
    )
    return [LintWarning(schedule=first.name, field=rule_key(first.timing), message=message)]


def _spreading_proposal(timing: Timing) -> str:
    jitter = "give them jitter: 5m"
    if not isinstance(timing.rule, Cron):
        return jitter
    _, _, rest = timing.rule.expression.partition(" ")
    return f'{jitter}, or write H for the minute, like cron: "H {rest}", if the exact minute does not matter'

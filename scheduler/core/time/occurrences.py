"""Schedule and range to occurrences: the one place that says at which instants a schedule is expected.

A rule is compiled once into ``Dates`` (when does it fire), wrapped with its calendars (which of those count), and cut
by ``start`` and ``end``. Schedules that share rule, zone, DST rule and calendar share all of that and what has been
computed. All arithmetic is in ``localtime`` and the rule modules; nothing here reads a clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache, reduce
from itertools import islice
from threading import Lock
from typing import NamedTuple

from scheduler.core.models import EPOCH, At, CalendarRule, Cron, DstRule, Every, Occurrence, Rrule, Shift, Timing
from scheduler.core.time.calendars import Exclusions
from scheduler.core.time.cron import CronFields, parse_cron
from scheduler.core.time.cron_times import CronTimes
from scheduler.core.time.dates import FIRST, LAST, TICK, Dates, EveryDates, ListedDates, LocalDates, within
from scheduler.core.time.localtime import Batch, LocalClock, instant_of, local_clock
from scheduler.core.time.rrule import parse_recurrence
from scheduler.core.time.rrule_times import RruleTimes
from scheduler.errors import DefinitionError

SEARCH_HORIZON = timedelta(days=400 * 366)
"""How far a next date is looked for: one full cycle of the calendar, in which every rule that ever fires does."""

_SECOND = timedelta(seconds=1)
_ONE_DAY = timedelta(days=1)
_NO_TIME = timedelta(0)


def occurrences_between(timing: Timing, after: datetime, until: datetime, limit: int | None = None) -> list[Occurrence]:
    """Occurrences of ``timing`` with logical dates in ``(after, until]``, oldest first, at most ``limit``.

    Logical dates strictly increase and lie in ``[start, end)``; days a calendar excludes are left out, or keep their
    logical date with a moved ``due_at`` under ``shift``. ``interval_start`` is the previous expected date, looked for
    before ``after`` and before ``start`` too; the very first date of a rule has an empty interval.

    Raises DefinitionError for a timing that cannot be computed.
    """
    compiled = compile_timing(timing)
    after, until = compiled.cut(after, until)
    found = compiled.expected.computed(after, until, limit)
    return list(found) if not timing.jitter else [_jittered(timing, occurrence) for occurrence in found]


def next_occurrences(timing: Timing, after: datetime, count: int, horizon: datetime | None = None) -> list[Occurrence]:
    """The first ``count`` occurrences with logical dates after ``after``, and up to ``horizon`` if one is given.

    Fewer if the schedule does not fire that often again; a rule that can never match is answered at once.
    """
    after = within(after)
    return occurrences_between(timing, after, horizon or after + min(SEARCH_HORIZON, LAST - after), count)


def previous_occurrence(timing: Timing, at: datetime) -> Occurrence | None:
    """The latest occurrence with a logical date before ``at``; None if there is none since ``start``."""
    compiled = compile_timing(timing)
    earliest, latest = compiled.cut(FIRST, within(at) - TICK)
    last = compiled.expected.last_between(earliest, latest)
    if last is None:
        return None
    return next(iter(occurrences_between(timing, last - TICK, last)), None)


def never_fires(timing: Timing) -> bool:
    """Whether no date is expected at all between the schedule's start and end; people park jobs with such rules."""
    return not next_occurrences(timing, within(timing.start or EPOCH) - TICK, 1)


def is_fixed(timing: Timing) -> bool:
    """Whether a date of this rule is what its wall time says, not one of a sequence in elapsed time."""
    dates = compile_timing(timing).expected.dates
    return not (isinstance(dates, LocalDates) and dates.is_wild)


def due_lead(timing: Timing) -> timedelta:
    """How long before its logical date a date may be due: zero unless a calendar shifts dates to previous days."""
    exclusions = compile_timing(timing).expected.exclusions
    if exclusions is None or exclusions.shift is not Shift.PREVIOUS:
        return timedelta(0)
    return timedelta(days=exclusions.longest_run + 2)


def firings(cron: str, timezone: str, after: datetime, until: datetime) -> Iterator[datetime]:
    """The UTC instants in ``(after, until]`` at which a cron expression fires in a zone, in order.

    The default DST rule applies: a fixed time that is skipped fires at the first instant after the gap, one that is
    repeated at its first instant; rules whose minute or hour begins with ``*`` follow elapsed time.

    Raises DefinitionError at the call for an expression or zone that ``sched lint`` refuses. ``H`` fields are spread
    by an empty name. Both ends must be timezone-aware.
    """
    dates = _local_dates(parse_cron(cron, ""), timezone, DstRule(), frozenset())
    return (base + delta for base, _, _, deltas, _ in dates.batches(within(after), within(until)) for delta in deltas)


def compile_timing(timing: Timing) -> CompiledTiming:
    """The timing ready for questions; checked on the first call and kept.

    Raises DefinitionError with one sentence saying what is wrong and what to write instead.
    """
    return _compile(timing)


class CompiledTiming:
    """One schedule's timing: the shared dates of its rule, cut by its own start and end."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.expected = _expected(_rule_key(timing), timing.timezone, timing.dst, timing.calendar)

    def cut(self, after: datetime, until: datetime) -> tuple[datetime, datetime]:
        """The part of ``(after, until]`` that lies in the schedule's ``[start, end)``, in UTC."""
        after, until = within(after), within(until)
        if self.timing.start is not None:
            after = max(after, within(self.timing.start) - TICK)
        if self.timing.end is not None:
            until = min(until, within(self.timing.end) - TICK)
        return after, until


@lru_cache(maxsize=32768)
def _compile(timing: Timing) -> CompiledTiming:
    if timing.start is not None and timing.end is not None and timing.start >= timing.end:
        raise DefinitionError(f"start {timing.start.isoformat()} is not before end {timing.end.isoformat()}; swap them")
    if timing.jitter < timedelta(0):
        raise DefinitionError("jitter is negative; write a duration such as 5m")
    return CompiledTiming(timing)


def _rule_key(timing: Timing) -> CronFields | Every | Rrule | At:
    """What two schedules must share to share their dates: cron by meaning, everything else by text."""
    rule = timing.rule
    return parse_cron(rule.expression, timing.name) if isinstance(rule, Cron) else rule


@lru_cache(maxsize=16384)
def _expected(
    rule: CronFields | Every | Rrule | At, timezone: str, dst: DstRule, calendar: CalendarRule | None
) -> Expected:
    clock = local_clock(timezone)
    exclusions = Exclusions(calendar) if calendar is not None else None
    if isinstance(rule, CronFields):
        left_out = exclusions.weekdays if exclusions and exclusions.shift is Shift.SKIP else frozenset()
        return Expected(clock, _local_dates(rule, timezone, dst, left_out), dst, exclusions)
    if isinstance(rule, Every):
        return Expected(clock, EveryDates(clock, rule), dst, exclusions)
    if isinstance(rule, At):
        return Expected(clock, ListedDates(clock, rule, dst), dst, exclusions)
    recurrence = parse_recurrence(rule.text, clock.zone)
    dates = LocalDates(clock, RruleTimes(recurrence), dst, latest=recurrence.until_instant)
    return Expected(clock, dates, dst, exclusions)


@lru_cache(maxsize=16384)
def _local_dates(fields: CronFields, timezone: str, dst: DstRule, left_out: frozenset[int]) -> LocalDates:
    return LocalDates(local_clock(timezone), CronTimes(fields, left_out), dst)


def _later(_: Batch | None, batch: Batch) -> Batch | None:
    return batch


class Expected:
    """The expected dates of a rule with its calendars, before any schedule's own start, end and jitter."""

    def __init__(self, clock: LocalClock, dates: Dates, dst: DstRule, exclusions: Exclusions | None) -> None:
        self.clock, self.dates, self.dst, self.exclusions = clock, dates, dst, exclusions

    def computed(self, after: datetime, until: datetime, limit: int | None) -> Sequence[Occurrence]:
        """The occurrences of ``(after, until]``, at most ``limit``; a range asked again is not computed again.

        Whoever asks for less of the same range than is known, or for no more than there is, is answered from it.
        """
        key = (after, until)
        known = _recent.get(self, key)
        if known is None or not (known.is_whole or (limit is not None and limit <= len(known.dates))):
            dates = list(islice(self._occurrences(after, until), limit))
            known = _Computed(dates, limit is None or len(dates) < limit)
            _recent.put(self, key, known)
        return known.dates if limit is None or limit >= len(known.dates) else known.dates[:limit]

    def last_between(self, after: datetime, until: datetime) -> datetime | None:
        """The latest expected date in ``(after, until]``, looked for in steps back that grow."""
        end, reach = until, _NO_TIME
        while end > after and (near := self.dates.reach_back(end)) is not None:
            low = max(after, min(near, end - reach))
            last = reduce(_later, self._counted(low, end), None)
            if last is not None:
                return last.base + last.deltas[-1]
            end, reach = low, reach * 8 + _ONE_DAY
        return None

    def _occurrences(self, after: datetime, until: datetime) -> Iterator[Occurrence]:
        previous: datetime | None = None
        for batch in self._counted(after, until):
            base, wall, local_date, deltas, fold = batch
            if previous is None:
                first = base + deltas[0]
                previous = self.last_between(FIRST, first - TICK) or first
            moved = self._moved_day(local_date)
            for delta in deltas:
                logical_date = base + delta
                own_wall = None if wall is None else wall + delta
                if fold and own_wall is not None:
                    own_wall = own_wall.replace(fold=1)
                due_at = logical_date if moved is None else self._moved(logical_date, own_wall, moved)
                yield Occurrence(logical_date, due_at, own_wall, local_date, previous)
                previous = logical_date

    def _counted(self, after: datetime, until: datetime) -> Iterator[Batch]:
        """The batches on days that count."""
        if after >= until or (self.exclusions is not None and self.exclusions.excludes_everything):
            return iter(())
        batches = self.dates.batches(after, until)
        exclusions = self.exclusions
        if exclusions is None:
            return batches
        return (batch for batch in batches if exclusions.moved(batch.local_date) is not None)

    def _moved_day(self, day: date) -> date | None:
        """Where the dates of an excluded day go; None if they stay."""
        if self.exclusions is None or not self.exclusions.excludes(day):
            return None
        return self.exclusions.moved(day)

    def _moved(self, logical_date: datetime, wall: datetime | None, day: date) -> datetime:
        local = wall or logical_date.astimezone(self.clock.zone).replace(tzinfo=None)
        return instant_of(self.clock, datetime.combine(day, local.time()), self.dst.overlap)


class _Computed(NamedTuple):
    """The first dates of a range; whole if the range has no more."""

    dates: Sequence[Occurrence]
    is_whole: bool


class _Recent:
    """What was computed lately, for the schedules that share a rule; bounded by the occurrences it holds."""

    _MOST = 50_000

    def __init__(self) -> None:
        self._held: dict[tuple[int, tuple[datetime, datetime]], tuple[Expected, _Computed]] = {}
        self._count = 0
        self._lock = Lock()

    def get(self, owner: Expected, key: tuple[datetime, datetime]) -> _Computed | None:
        held = self._held.get((id(owner), key))
        return held[1] if held else None

    def put(self, owner: Expected, key: tuple[datetime, datetime], found: _Computed) -> None:
        size = len(found.dates) + 1
        if size > self._MOST // 10:
            return
        with self._lock:
            if self._count + size > self._MOST:
                self._held.clear()
                self._count = 0
            self._held[id(owner), key] = (owner, found)
            self._count += size


_recent = _Recent()


def _jittered(timing: Timing, occurrence: Occurrence) -> Occurrence:
    return occurrence._replace(due_at=occurrence.due_at + _jitter(timing, occurrence.logical_date))


def _jitter(timing: Timing, logical_date: datetime) -> timedelta:
    """Whole seconds in ``[0, jitter)``, the same on every machine for the same name and date."""
    seconds = timing.jitter // _SECOND
    if seconds < 1:
        return timedelta(0)
    digest = hashlib.sha256(f"{timing.name}:{logical_date:%Y-%m-%dT%H:%M:%SZ}".encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % seconds)

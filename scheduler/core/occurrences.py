"""Schedule and range to occurrences: the one place that says at which instants a schedule is expected.

A rule is compiled once into ``Dates`` (when does it fire), wrapped with its calendars (which of those count), and cut
by ``start`` and ``end``. Schedules that share rule, zone, DST rule and calendar share all of that and what has been
computed. All arithmetic is in ``localtime`` and the rule modules; nothing here reads a clock.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, reduce
from itertools import islice
from threading import Lock
from typing import Protocol

from scheduler.core.calendars import Exclusions
from scheduler.core.cron import CronFields, parse_cron
from scheduler.core.cron_walls import CronWalls
from scheduler.core.localtime import (
    EPOCH_WALL,
    FIRST_YEAR,
    LAST_YEAR,
    MINUTE,
    NO_DELTA,
    Batch,
    ListedWalls,
    LocalClock,
    WallSource,
    instant_of,
    local_batches,
    local_clock,
    minute_of,
    reach_back,
)
from scheduler.core.models import EPOCH, At, CalendarRule, Cron, DstRule, Every, Occurrence, Rrule, Shift, Timing
from scheduler.core.rrule_text import parse_recurrence
from scheduler.core.rrule_walls import RruleWalls
from scheduler.errors import DefinitionError

SEARCH_HORIZON = timedelta(days=400 * 366)
"""How far a next date is looked for: one full cycle of the calendar, in which every rule that ever fires does."""

MAX_MOMENTS = 10_000

_FIRST = datetime(FIRST_YEAR, 1, 2, tzinfo=UTC)
_LAST = datetime(LAST_YEAR - 1, 12, 30, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_ONE_DAY = timedelta(days=1)
_LONGEST = timedelta(days=36_525)
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
    after = _within(after)
    return occurrences_between(timing, after, horizon or after + min(SEARCH_HORIZON, _LAST - after), count)


def previous_occurrence(timing: Timing, at: datetime) -> Occurrence | None:
    """The latest occurrence with a logical date before ``at``; None if there is none since ``start``."""
    compiled = compile_timing(timing)
    earliest, latest = compiled.cut(_FIRST, _within(at) - _TICK)
    last = compiled.expected.last_between(earliest, latest)
    if last is None:
        return None
    return next(iter(occurrences_between(timing, last - _TICK, last)), None)


def never_fires(timing: Timing) -> bool:
    """Whether no date is expected at all between the schedule's start and end; people park jobs with such rules."""
    return not next_occurrences(timing, _within(timing.start or EPOCH) - _TICK, 1)


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
    return (base + delta for base, _, _, deltas, _ in dates.batches(_within(after), _within(until)) for delta in deltas)


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
        after, until = _within(after), _within(until)
        if self.timing.start is not None:
            after = max(after, _within(self.timing.start) - _TICK)
        if self.timing.end is not None:
            until = min(until, _within(self.timing.end) - _TICK)
        return after, until


@lru_cache(maxsize=32768)
def _compile(timing: Timing) -> CompiledTiming:
    if timing.start is not None and timing.end is not None and timing.start >= timing.end:
        raise DefinitionError(f"start {timing.start.isoformat()} is not before end {timing.end.isoformat()}; swap them")
    if timing.jitter < timedelta(0):
        raise DefinitionError("jitter is negative; write a duration such as 5m")
    return CompiledTiming(timing)


class Dates(Protocol):
    """When a rule fires, before calendars; batches are in order and their instants strictly increase."""

    def batches(self, after: datetime, until: datetime) -> Iterator[Batch]: ...

    def reach_back(self, until: datetime) -> datetime | None:
        """An instant from which the rule names a time before ``until``, as near as is cheap; None if it has none."""
        ...


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
    dates = LocalDates(clock, RruleWalls(recurrence), dst, latest=recurrence.until_instant)
    return Expected(clock, dates, dst, exclusions)


@lru_cache(maxsize=16384)
def _local_dates(fields: CronFields, timezone: str, dst: DstRule, left_out: frozenset[int]) -> LocalDates:
    return LocalDates(local_clock(timezone), CronWalls(fields, left_out), dst)


class LocalDates:
    """A rule in local time on the clock of its zone; ``latest`` is the last instant it may fire at."""

    def __init__(self, clock: LocalClock, source: WallSource, dst: DstRule, latest: datetime | None = None) -> None:
        self._clock, self._source, self._dst, self._latest = clock, source, dst, latest

    def batches(self, after: datetime, until: datetime) -> Iterator[Batch]:
        if self._latest is not None:
            until = min(until, self._latest)
        found = local_batches(self._clock, self._source, self._dst, minute_of(after), minute_of(until) + 1)
        return _clipped(found, after, until)

    def reach_back(self, until: datetime) -> datetime | None:
        minute = reach_back(self._source, minute_of(until if self._latest is None else min(until, self._latest)))
        return None if minute is None else EPOCH + minute * MINUTE


class EveryDates:
    """Elapsed time from an anchor. A batch is at most ``_CHUNK`` firings of one local day."""

    _CHUNK = 500

    def __init__(self, clock: LocalClock, rule: Every) -> None:
        if rule.interval < _SECOND or rule.interval % _SECOND or rule.interval > _LONGEST:
            asked = f"{rule.interval.total_seconds():g}s"
            raise DefinitionError(
                f'every "{asked}" is not a whole number of seconds from 1s to 100 years; write such as 15m'
            )
        self._clock, self._interval, self._anchor = clock, rule.interval, _utc(rule.anchor)
        if self._anchor.microsecond:
            raise DefinitionError(f"anchor {rule.anchor.isoformat()} has a fraction of a second; write whole seconds")
        is_dense = rule.interval < timedelta(days=1)
        self._deltas = tuple(rule.interval * step for step in range(self._CHUNK if is_dense else 1))

    def batches(self, after: datetime, until: datetime) -> Iterator[Batch]:
        step = (after - self._anchor) // self._interval + 1
        while self._anchor <= _LAST and (base := self._anchor + step * self._interval) <= until:
            minute = minute_of(base)
            stretch = self._clock.stretch_at(minute)
            day = (minute + stretch.offset) // 1440
            day_end = EPOCH + min((day + 1) * 1440 - stretch.offset, stretch.end) * MINUTE
            room = min((day_end - base - _TICK) // self._interval, (until - base) // self._interval) + 1
            deltas = self._deltas[: max(1, room)]
            yield Batch(base, None, (EPOCH_WALL + timedelta(days=day)).date(), deltas, 0)
            step += len(deltas)

    def reach_back(self, until: datetime) -> datetime | None:
        return max(until - self._interval, _FIRST)


class ListedDates:
    """Single moments: instants as they are, wall times by the DST rule. All are worked out at once."""

    def __init__(self, clock: LocalClock, rule: At, dst: DstRule) -> None:
        if len(rule.moments) > MAX_MOMENTS:
            raise DefinitionError(f"at has {len(rule.moments)} moments, at most {MAX_MOMENTS} are allowed; use a rule")
        instants = [moment.astimezone(UTC) for moment in rule.moments if moment.tzinfo is not None]
        walls = ListedWalls([moment for moment in rule.moments if moment.tzinfo is None])
        found = {at: Batch(at, None, at.astimezone(clock.zone).date(), NO_DELTA, 0) for at in instants}
        found.update({batch.base: batch for batch in LocalDates(clock, walls, dst).batches(_FIRST, _LAST)})
        self._instants = sorted(found)
        self._batches = [found[at] for at in self._instants]

    def batches(self, after: datetime, until: datetime) -> Iterator[Batch]:
        low, high = bisect_right(self._instants, after), bisect_right(self._instants, until)
        return iter(self._batches[low:high])

    def reach_back(self, until: datetime) -> datetime | None:
        index = bisect_right(self._instants, until)
        return self._instants[index - 1] - _TICK if index else None


def _clipped(batches: Iterator[Batch], after: datetime, until: datetime) -> Iterator[Batch]:
    """The batches without what is at or before ``after`` or later than ``until``; only the outermost are touched."""
    for batch in batches:
        base, deltas = batch.base, batch.deltas
        if base + deltas[0] <= after or base + deltas[-1] > until:
            deltas = deltas[bisect_right(deltas, after - base) : bisect_right(deltas, until - base)]
            if not deltas:
                continue
            batch = batch._replace(deltas=deltas)
        yield batch


def _later(_: Batch | None, batch: Batch) -> Batch | None:
    return batch


class Expected:
    """The expected dates of a rule with its calendars, before any schedule's own start, end and jitter."""

    def __init__(self, clock: LocalClock, dates: Dates, dst: DstRule, exclusions: Exclusions | None) -> None:
        self.clock, self.dates, self.dst, self.exclusions = clock, dates, dst, exclusions

    def computed(self, after: datetime, until: datetime, limit: int | None) -> Sequence[Occurrence]:
        """The occurrences of ``(after, until]``, at most ``limit``; a range asked again is not computed again."""
        key = (after, until, limit)
        known = _recent.get(self, key)
        if known is None:
            known = list(islice(self._occurrences(after, until), limit))
            _recent.put(self, key, known)
        return known

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
                previous = self.last_between(_FIRST, first - _TICK) or first
            moved = self._moved_day(local_date)
            for delta in deltas:
                logical_date = base + delta
                own_wall = None if wall is None else wall + delta
                if fold and own_wall is not None:
                    own_wall = own_wall.replace(fold=1)
                yield Occurrence(
                    logical_date=logical_date,
                    due_at=logical_date if moved is None else self._moved(logical_date, own_wall, moved),
                    wall=own_wall,
                    local_date=local_date,
                    interval_start=previous,
                )
                previous = logical_date

    def _counted(self, after: datetime, until: datetime) -> Iterator[Batch]:
        """The batches on days that count."""
        if after >= until:
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


class _Recent:
    """What was computed lately, for the schedules that share a rule; bounded by the occurrences it holds."""

    _MOST = 50_000

    def __init__(self) -> None:
        self._held: dict[tuple[int, tuple[datetime, datetime, int | None]], tuple[Expected, Sequence[Occurrence]]] = {}
        self._count = 0
        self._lock = Lock()

    def get(self, owner: Expected, key: tuple[datetime, datetime, int | None]) -> Sequence[Occurrence] | None:
        held = self._held.get((id(owner), key))
        return held[1] if held else None

    def put(self, owner: Expected, key: tuple[datetime, datetime, int | None], found: Sequence[Occurrence]) -> None:
        size = len(found) + 1
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
    return Occurrence(
        logical_date=occurrence.logical_date,
        due_at=occurrence.due_at + _jitter(timing, occurrence.logical_date),
        wall=occurrence.wall,
        local_date=occurrence.local_date,
        interval_start=occurrence.interval_start,
    )


def _jitter(timing: Timing, logical_date: datetime) -> timedelta:
    """Whole seconds in ``[0, jitter)``, the same on every machine for the same name and date."""
    seconds = timing.jitter // _SECOND
    if seconds < 1:
        return timedelta(0)
    digest = hashlib.sha256(f"{timing.name}:{logical_date:%Y-%m-%dT%H:%M:%SZ}".encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % seconds)


def _utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no zone; instants are timezone-aware here")
    return at.astimezone(UTC)


def _within(at: datetime) -> datetime:
    """The instant in UTC, moved into the years that are computed."""
    return min(max(_utc(at), _FIRST), _LAST)

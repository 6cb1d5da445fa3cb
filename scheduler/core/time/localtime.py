"""Local time and instants: zones, gaps, repeated hours, and the rule that decides what fires in them.

Time is a sequence of UTC minutes, counted from 1970; a zone is cut into *stretches* of constant offset. Everything here
works in those whole numbers, so that a year of minutes costs one look at each change of the clock. The rule itself is
written down in docs/decisions/0003. Zone data comes from the ``tzdata`` package and never from the machine.
``occurrences`` puts rules on top of this module.
"""

from __future__ import annotations

import difflib
import importlib.resources
import zoneinfo
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

from scheduler.core.models import EPOCH, DstRule, GapRule, RepeatRule
from scheduler.errors import DefinitionError

zoneinfo.reset_tzpath(to=[])
ZoneInfo.clear_cache()

EPOCH_WALL = EPOCH.replace(tzinfo=None)
MINUTE = timedelta(minutes=1)
DAY = 1440
"""Minutes of a day that the clock does not change."""

FIRST_YEAR, LAST_YEAR = 1700, 9900
"""No date outside these years is ever computed."""

_SPREAD = 3 * DAY
"""More than a local time can differ from UTC, plus the longest gap."""

_STRIDE = 3 * DAY
"""Offsets are compared at this distance to find the changes; the tests hold that none are nearer to each other."""

_NOT_PLACES = frozenset({"Factory", "localtime", "posixrules"})


def tz_version() -> str:
    """The release of the tz database all local times are computed with, such as ``2026f``."""
    return str(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """The zones of the ``tzdata`` package, links included."""
    listed = (importlib.resources.files("tzdata") / "zones").read_text(encoding="ascii").split()
    return frozenset(listed) - _NOT_PLACES


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The zone of that IANA name, from the ``tzdata`` package only.

    Raises DefinitionError, with the nearest spelling, for everything else: paths, offsets, ``localtime``, blanks.
    """
    if name in zone_names():
        return ZoneInfo(name)
    hint = _nearest_zone(name)
    raise DefinitionError(f'timezone "{name[:64]}" is not an IANA zone; {hint}')


def _nearest_zone(name: str) -> str:
    folded = name.strip().replace(" ", "_").casefold()
    by_folded = {known.casefold(): known for known in sorted(zone_names())}
    by_city = {known.rpartition("/")[2].casefold(): known for known in sorted(zone_names())}
    near = difflib.get_close_matches(folded[:64], by_folded, n=1, cutoff=0.75)
    found = by_folded.get(folded) or by_city.get(folded) or (by_folded[near[0]] if near else None)
    return f'did you mean "{found}"?' if found else 'write a name such as "Europe/Berlin" or "UTC"'


class Stretch(NamedTuple):
    """UTC minutes ``[start, end)`` during which local time is UTC plus ``offset`` minutes.

    ``skipped`` local minutes were jumped over at ``start``. All local times of a stretch have been shown at an earlier
    instant or none has, and likewise for later instants.
    """

    start: int
    end: int
    offset: int
    skipped: int
    shown_before: bool
    shown_again: bool


class LocalClock:
    """What the clocks of one zone show. Get one from ``local_clock``; years are worked out once and kept.

    Offsets that are not whole minutes (none after January 1972) are rounded down: a firing is a whole UTC minute.
    """

    def __init__(self, name: str) -> None:
        self.zone = zone(name)
        self._years: dict[int, tuple[Stretch, ...]] = {}

    def stretches(self, year: int) -> tuple[Stretch, ...]:
        """The stretches of one UTC year, in order, without holes."""
        known = self._years.get(year)
        if known is None:
            known = self._years[year] = self._survey(year_start(year), year_start(year + 1))
        return known

    def stretch_at(self, minute: int) -> Stretch:
        """The stretch that holds this UTC minute."""
        stretches = self.stretches(year_of(minute))
        return stretches[bisect_right(stretches, minute, key=_start) - 1]

    def changes(self, start: int, end: int) -> Iterator[Stretch]:
        """The stretches that begin with a change of the clock in UTC minutes ``[start, end)``, in order."""
        for year in range(year_of(start), year_of(end - 1) + 1):
            for stretch in self.stretches(year):
                if start <= stretch.start < end and self._offset(stretch.start - 1) != stretch.offset:
                    yield stretch

    def _survey(self, start: int, end: int) -> tuple[Stretch, ...]:
        segments = self._segments(start - _SPREAD, end + _SPREAD)
        shown = [(lo + offset, hi + offset) for lo, hi, offset in segments]
        edges = sorted({edge for interval in shown for edge in interval})
        found = []
        for index, (lo, _, offset) in enumerate(segments):
            skipped = max(0, offset - segments[index - 1][2]) if index else 0
            local_start, local_end = shown[index]
            inner = edges[bisect_right(edges, local_start) : bisect_left(edges, local_end)]
            for a, b in zip([local_start, *inner], [*inner, local_end], strict=True):
                before = any(x <= a < y for x, y in shown[:index])
                again = any(x <= a < y for x, y in shown[index + 1 :])
                begun, ended = max(a - offset, start), min(b - offset, end)
                if begun < ended:
                    found.append(Stretch(begun, ended, offset, skipped if begun == lo else 0, before, again))
        return tuple(found)

    def _segments(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(start, end, offset) of constant offset; no two changes in the tz database are as near as ``_STRIDE``."""
        segments = []
        probes = _probes(start, end)
        shifts = [at.astimezone(self.zone).utcoffset() for _, at in probes]
        begun, offset = start, self._offset(start)
        for (low, _), (high, _), before, after in zip(probes, probes[1:], shifts, shifts[1:], strict=False):
            if before == after or self._offset(high) == offset:
                continue
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
            segments.append((begun, high, offset))
            begun, offset = high, self._offset(high)
        segments.append((begun, end, offset))
        return segments

    def _offset(self, minute: int) -> int:
        shift = (EPOCH + timedelta(minutes=minute)).astimezone(self.zone).utcoffset()
        assert shift is not None
        return shift // MINUTE


@lru_cache(maxsize=512)
def _probes(start: int, end: int) -> tuple[tuple[int, datetime], ...]:
    """The minutes at which offsets are compared, as instants too; every zone looks at the same ones."""
    minutes = [*range(start, end, _STRIDE), end]
    return tuple((minute, EPOCH + timedelta(minutes=minute)) for minute in minutes)


def _start(stretch: Stretch) -> int:
    return stretch.start


@lru_cache(maxsize=1024)
def local_clock(name: str) -> LocalClock:
    """The clock of a zone; one object per zone and process."""
    return LocalClock(name)


class LocalTimes(Protocol):
    """A rule in local time: the wall-clock times it names, whether or not the clock ever shows them.

    ``is_wild`` rules follow elapsed time, all others are fixed (docs/decisions/0003).
    """

    is_wild: bool

    def between(self, start: int, end: int) -> Iterator[tuple[datetime, Sequence[timedelta]]]:
        """Times in local minutes ``[start, end)``, in order: a naive base and what to add to it, never nothing."""
        ...

    def first_from(self, minute: int) -> int | None:
        """The first local minute at or after ``minute`` that may hold a time; None if none does."""
        ...

    def last_until(self, minute: int) -> int | None:
        """A local minute at or before the last time that is not later than ``minute``; None if there is none."""
        ...


class Batch(NamedTuple):
    """Firings of one local day that share an offset: ``base`` plus each delta, in UTC; ``wall`` likewise, naive."""

    base: datetime
    wall: datetime | None
    local_date: date
    deltas: Sequence[timedelta]
    fold: int


NO_DELTA = (timedelta(0),)


def local_batches(clock: LocalClock, source: LocalTimes, dst: DstRule, start: int, end: int) -> Iterator[Batch]:
    """The firings of a local rule in UTC minutes ``[start, end)``, strictly increasing.

    Wild rules fire whenever the clock shows a time they name: in both passes of a repeated hour, never in a gap. Fixed
    rules fire in the pass that ``dst.overlap`` chooses, and with ``gap: run_after`` once at the first instant after a
    gap that swallowed one or more of their times. Source: cron(8) as in Debian, without its three-hour limit.
    """
    while start < end:
        nearest = source.first_from(start - _SPREAD)
        if nearest is None:
            return
        start = max(start, nearest - _SPREAD)
        year = year_of(start)
        stop = min(end, year_start(year + 1))
        if start < stop:
            for stretch in clock.stretches(year):
                if stretch.end > start and stretch.start < stop:
                    yield from _stretch_batches(stretch, source, dst, max(stretch.start, start), min(stretch.end, stop))
        start = stop


def reach_back(source: LocalTimes, minute: int) -> int | None:
    """A UTC minute from which a rule has a time before ``minute``, as near as is cheap; None if it has none."""
    nearest = source.last_until(minute - _SPREAD)
    if nearest is None:
        nearest = source.last_until(minute + _SPREAD)
    return None if nearest is None else nearest - _SPREAD


def _stretch_batches(stretch: Stretch, source: LocalTimes, dst: DstRule, start: int, end: int) -> Iterator[Batch]:
    offset = stretch.offset
    is_chosen = source.is_wild or _chooses(dst.overlap, stretch)
    if stretch.skipped and start == stretch.start and not source.is_wild and dst.gap is GapRule.RUN_AFTER:
        made_up = _after_gap(stretch, source, is_chosen)
        if made_up is not None:
            yield made_up
    if not is_chosen:
        return
    shift = timedelta(minutes=offset)
    fold = int(stretch.shown_before and (source.is_wild or dst.overlap is RepeatRule.BOTH))
    for wall, deltas in source.between(start + offset, end + offset):
        yield Batch((wall - shift).replace(tzinfo=UTC), wall, wall.date(), deltas, fold)


def _chooses(overlap: RepeatRule, stretch: Stretch) -> bool:
    if overlap is RepeatRule.FIRST:
        return not stretch.shown_before
    return overlap is RepeatRule.BOTH or not stretch.shown_again


def _after_gap(stretch: Stretch, source: LocalTimes, is_chosen: bool) -> Batch | None:
    """The one firing that makes up for the times a gap swallowed; None if a real one stands at that instant."""
    resumed = stretch.start + stretch.offset
    swallowed = next(source.between(resumed - stretch.skipped, resumed), None)
    if swallowed is None:
        return None
    real = next(source.between(resumed, resumed + 1), None) if is_chosen else None
    if real is not None and real[0] + real[1][0] == wall_of(resumed):
        return None
    wall = swallowed[0] + swallowed[1][0]
    return Batch(EPOCH + timedelta(minutes=stretch.start), wall, wall.date(), NO_DELTA, 0)


class ListedTimes:
    """Single wall-clock times as a source; they are fixed."""

    is_wild = False

    def __init__(self, times: Sequence[datetime]) -> None:
        self._times = sorted(set(times))

    def between(self, start: int, end: int) -> Iterator[tuple[datetime, Sequence[timedelta]]]:
        low, high = bisect_left(self._times, wall_of(start)), bisect_left(self._times, wall_of(end))
        for wall in self._times[low:high]:
            yield wall, NO_DELTA

    def first_from(self, minute: int) -> int | None:
        index = bisect_left(self._times, wall_of(minute))
        return minute_of_wall(self._times[index]) if index < len(self._times) else None

    def last_until(self, minute: int) -> int | None:
        index = bisect_left(self._times, wall_of(minute + 1))
        return minute_of_wall(self._times[index - 1]) if index else None


def instant_of(clock: LocalClock, wall: datetime, overlap: RepeatRule = RepeatRule.FIRST) -> datetime:
    """The UTC instant of one naive local time: after the gap if it is skipped, the first (or last) if repeated."""
    chosen = RepeatRule.LAST if overlap is RepeatRule.LAST else RepeatRule.FIRST
    minute = minute_of_wall(wall)
    source = ListedTimes([wall])
    return next(local_batches(clock, source, DstRule(overlap=chosen), minute - _SPREAD, minute + _SPREAD)).base


def minute_of(at: datetime) -> int:
    """The UTC minute an aware instant lies in, counted from 1970 and kept within the years that are computed."""
    return min(max((at - EPOCH) // MINUTE, year_start(FIRST_YEAR)), year_start(LAST_YEAR))


def minute_of_wall(wall: datetime) -> int:
    """The same count for a naive local time."""
    return min(max((wall - EPOCH_WALL) // MINUTE, year_start(FIRST_YEAR)), year_start(LAST_YEAR))


def wall_of(minute: int) -> datetime:
    """The naive local time of a local minute."""
    return EPOCH_WALL + timedelta(minutes=minute)


def year_of(minute: int) -> int:
    """The year of a minute."""
    return (EPOCH_WALL + timedelta(minutes=minute)).year


@lru_cache(maxsize=4096)
def year_start(year: int) -> int:
    """The first minute of a year."""
    return (date(year, 1, 1).toordinal() - EPOCH_WALL.toordinal()) * DAY

"""When one rule fires, before calendars and a schedule's own ends: in local time, by elapsed time, or as a list.

All kinds answer the same two questions, in batches of firings that share a local day. Rules that cannot be computed
are refused here, when they are made. ``occurrences`` puts calendars, intervals and due times on top.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

from scheduler.core.models import EPOCH, At, DstRule, Every
from scheduler.core.time.localtime import (
    DAY,
    FIRST_YEAR,
    LAST_YEAR,
    MINUTE,
    NO_DELTA,
    Batch,
    ListedTimes,
    LocalClock,
    LocalTimes,
    local_batches,
    minute_of,
    reach_back,
    wall_of,
)
from scheduler.errors import DefinitionError

FIRST = datetime(FIRST_YEAR, 1, 2, tzinfo=UTC)
LAST = datetime(LAST_YEAR - 1, 12, 30, tzinfo=UTC)
"""Dates are computed between these instants."""

TICK = timedelta(microseconds=1)

MAX_MOMENTS = 10_000
LONGEST_INTERVAL = timedelta(days=36_525)

_SECOND = timedelta(seconds=1)
_ONE_DAY = timedelta(days=1)


class Dates(Protocol):
    """When a rule fires, before calendars; batches are in order and their instants strictly increase."""

    def batches(self, after: datetime, until: datetime) -> Iterator[Batch]: ...

    def reach_back(self, until: datetime) -> datetime | None:
        """An instant from which the rule names a time before ``until``, as near as is cheap; None if it has none."""
        ...


class LocalDates:
    """A rule in local time on the clock of its zone; ``latest`` is the last instant it may fire at."""

    def __init__(self, clock: LocalClock, source: LocalTimes, dst: DstRule, latest: datetime | None = None) -> None:
        self._clock, self._source, self._dst, self._latest = clock, source, dst, latest
        self.is_wild = source.is_wild

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
        if rule.interval < _SECOND or rule.interval % _SECOND or rule.interval > LONGEST_INTERVAL:
            asked = f"{rule.interval.total_seconds():g}s"
            raise DefinitionError(
                f'every "{asked}" is not a whole number of seconds from 1s to 100 years; write such as 15m'
            )
        self._clock, self._interval, self._anchor = clock, rule.interval, utc(rule.anchor)
        if self._anchor.microsecond:
            raise DefinitionError(f"anchor {rule.anchor.isoformat()} has a fraction of a second; write whole seconds")
        is_dense = rule.interval < timedelta(days=1)
        self._deltas = tuple(rule.interval * step for step in range(self._CHUNK if is_dense else 1))

    def batches(self, after: datetime, until: datetime) -> Iterator[Batch]:
        step = (after - self._anchor) // self._interval + 1
        while self._anchor <= LAST and (base := self._anchor + step * self._interval) <= until:
            minute = minute_of(base)
            stretch = self._clock.stretch_at(minute)
            day = (minute + stretch.offset) // DAY
            day_end = EPOCH + min((day + 1) * DAY - stretch.offset, stretch.end) * MINUTE
            room = min((day_end - base - TICK) // self._interval, (until - base) // self._interval) + 1
            deltas = self._deltas[: max(1, room)]
            yield Batch(base, None, wall_of(day * DAY).date(), deltas, 0)
            step += len(deltas)

    def reach_back(self, until: datetime) -> datetime | None:
        return max(until - self._interval, FIRST)


class ListedDates:
    """Single moments: instants as they are, wall times by the DST rule. All are worked out at once."""

    def __init__(self, clock: LocalClock, rule: At, dst: DstRule) -> None:
        if len(rule.moments) > MAX_MOMENTS:
            raise DefinitionError(f"at has {len(rule.moments)} moments, at most {MAX_MOMENTS} are allowed; use a rule")
        instants = [moment.astimezone(UTC) for moment in rule.moments if moment.tzinfo is not None]
        times = ListedTimes([moment for moment in rule.moments if moment.tzinfo is None])
        found = {at: Batch(at, None, at.astimezone(clock.zone).date(), NO_DELTA, 0) for at in instants}
        found.update({batch.base: batch for batch in LocalDates(clock, times, dst).batches(FIRST, LAST)})
        self._instants = sorted(found)
        self._batches = [found[at] for at in self._instants]

    def batches(self, after: datetime, until: datetime) -> Iterator[Batch]:
        low, high = bisect_right(self._instants, after), bisect_right(self._instants, until)
        return iter(self._batches[low:high])

    def reach_back(self, until: datetime) -> datetime | None:
        index = bisect_right(self._instants, until)
        return self._instants[index - 1] - TICK if index else None


def _clipped(batches: Iterator[Batch], after: datetime, until: datetime) -> Iterator[Batch]:
    """The batches without what is at or before ``after`` or later than ``until``.

    A batch spans less than a day, so only the outermost are looked into.
    """
    late = until - _ONE_DAY
    for batch in batches:
        if after < batch.base <= late:
            yield batch
            continue
        base, deltas = batch.base, batch.deltas
        deltas = deltas[bisect_right(deltas, after - base) : bisect_right(deltas, until - base)]
        if deltas:
            yield batch._replace(deltas=deltas)


def utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no zone; instants are timezone-aware here")
    return at.astimezone(UTC)


def within(at: datetime) -> datetime:
    """The instant in UTC, moved into the years that are computed."""
    return min(max(utc(at), FIRST), LAST)

"""The wall-clock times a cron expression names, day by day: sets in, times out, no zone and no clock change here.

Days are found month by month with bit masks, so a rule that matches once in eight years costs as little to search as
one that matches every minute. ``localtime`` turns the times into instants.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache

from scheduler.core.time.cron import CronFields
from scheduler.core.time.localtime import DAY, EPOCH_WALL, FIRST_YEAR, LAST_YEAR, year_of, year_start

_OFFSETS = tuple(timedelta(minutes=minute) for minute in range(DAY))
_EPOCH_DAY = EPOCH_WALL.toordinal()
_FIRST_DAY = year_start(FIRST_YEAR) // DAY
_LAST_DAY = year_start(LAST_YEAR) // DAY
_KEPT_YEARS = 256


class CronTimes:
    """A ``LocalTimes`` over cron fields; local days on the weekdays in ``excluded`` (Monday is 0) are left out."""

    def __init__(self, fields: CronFields, excluded: frozenset[int] = frozenset()) -> None:
        self.is_wild = fields.is_wild
        self._fields = fields
        self._days = _day_table(
            _DayRule(
                days=fields.days,
                last_day=fields.last_day,
                months=fields.months,
                weekdays=fields.weekdays,
                nth_weekdays=fields.nth_weekdays,
                last_weekdays=fields.last_weekdays,
                joined_with_or=fields.joins_days_with_or,
                excluded=sum(1 << (weekday + 1) % 7 for weekday in excluded),
            )
        )

    def between(self, start: int, end: int) -> Iterator[tuple[datetime, Sequence[timedelta]]]:
        minutes, all_deltas = _times_of_day(self._fields.hours, self._fields.minutes)
        first, last = start // DAY, (end - 1) // DAY
        for day in self._days.between(first, last):
            deltas: Sequence[timedelta] = all_deltas
            if day in (first, last):
                low = bisect_left(minutes, start - day * DAY)
                deltas = deltas[low : bisect_left(minutes, end - day * DAY)]
                if not deltas:
                    continue
            yield EPOCH_WALL + timedelta(day), deltas

    def first_from(self, minute: int) -> int | None:
        day = self._days.first_from(minute // DAY)
        return None if day is None else max(minute, day * DAY)

    def last_until(self, minute: int) -> int | None:
        day = self._days.last_until(minute // DAY - 1)
        return None if day is None else day * DAY


@lru_cache(maxsize=1024)
def _times_of_day(hours: tuple[int, ...], minutes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[timedelta, ...]]:
    """The times of one day as minutes and as durations; kept for few rules, since a minutely one has 1,440."""
    times = tuple(hour * 60 + minute for hour in hours for minute in minutes)
    return times, tuple(_OFFSETS[time] for time in times)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DayRule:
    """The part of cron fields that decides days; weekday masks have Sunday as bit 0."""

    days: int
    last_day: bool
    months: tuple[int, ...]
    weekdays: int
    nth_weekdays: tuple[tuple[int, int], ...]
    last_weekdays: int
    joined_with_or: bool
    excluded: int

    def matches(self, day: int, weekday: int, length: int) -> bool:
        """Whether the rule takes that day of a month of that length."""
        if self.excluded >> weekday & 1:
            return False
        by_day = bool(self.days >> day & 1) or (self.last_day and day == length)
        by_weekday = (
            bool(self.weekdays >> weekday & 1)
            or (weekday, (day + 6) // 7) in self.nth_weekdays
            or (bool(self.last_weekdays >> weekday & 1) and day + 7 > length)
        )
        return by_day or by_weekday if self.joined_with_or else by_day and by_weekday


@lru_cache(maxsize=4096)
def _day_table(rule: _DayRule) -> _DayTable:
    return _DayTable(rule)


class _DayTable:
    """The matching days, counted from 1970. Expressions that differ only in their times share one table.

    A month is worked out once for each length and first weekday it can have, a year once while it is kept.
    """

    def __init__(self, rule: _DayRule) -> None:
        self._rule = rule
        self._months: dict[tuple[int, int], tuple[int, ...]] = {}
        self._years: dict[int, tuple[int, ...]] = {}

    def between(self, first: int, last: int) -> Iterator[int]:
        """Matching days from ``first`` to ``last`` inclusive."""
        for year in range(year_of(first * DAY), year_of(last * DAY) + 1):
            days = self._days_of(year)
            yield from days[bisect_left(days, first) : bisect_right(days, last)]

    def first_from(self, day: int) -> int | None:
        """The first matching day at or after ``day``; None for a rule that never matches."""
        if self._is_empty or day >= _LAST_DAY:
            return None
        for year in range(year_of(day * DAY), LAST_YEAR):
            days = self._days_of(year)
            if days and days[-1] >= day:
                return days[bisect_left(days, day)]
        return None

    def last_until(self, day: int) -> int | None:
        """The last matching day at or before ``day``."""
        if self._is_empty or day <= _FIRST_DAY:
            return None
        for year in range(year_of(day * DAY), FIRST_YEAR, -1):
            days = self._days_of(year)
            if days and days[0] <= day:
                return days[bisect_right(days, day) - 1]
        return None

    @cached_property
    def _is_empty(self) -> bool:
        """Whether no month of any year has a matching day; every month begins on every weekday in some year."""
        return not any(
            self._offsets(weekday, length)
            for month in self._rule.months
            for length in {_length(2023, month), _length(2024, month)}
            for weekday in range(7)
        )

    def _days_of(self, year: int) -> tuple[int, ...]:
        known = self._years.get(year)
        if known is None:
            if len(self._years) >= _KEPT_YEARS:
                self._years.clear()
            days: list[int] = []
            for month in self._rule.months:
                first = date(year, month, 1).toordinal() - _EPOCH_DAY
                days.extend([first + offset for offset in self._offsets((first + 4) % 7, _length(year, month))])
            known = self._years[year] = tuple(days)
        return known

    def _offsets(self, weekday: int, length: int) -> tuple[int, ...]:
        """Days after the 1st, for a month of that length whose 1st is that weekday."""
        known = self._months.get((weekday, length))
        if known is None:
            matches = self._rule.matches
            days = range(1, length + 1)
            known = tuple(day - 1 for day in days if matches(day, (weekday + day - 1) % 7, length))
            self._months[weekday, length] = known
        return known


def _length(year: int, month: int) -> int:
    following = date(year + month // 12, month % 12 + 1, 1)
    return (following - date(year, month, 1)).days

"""The wall-clock times a cron expression names, day by day: sets in, times out, no zone and no clock change here.

Days are found month by month with bit masks, so a rule that matches once in eight years costs as little to search as
one that matches every minute. ``localtime`` turns the times into instants.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from scheduler.core.cron import CronFields
from scheduler.core.localtime import DAY, EPOCH_WALL, FIRST_YEAR, LAST_YEAR, wall_of, year_of, year_start

_OFFSETS = tuple(timedelta(minutes=minute) for minute in range(DAY))
_EPOCH_DAY = EPOCH_WALL.toordinal()
_KEPT_YEARS = 64


class CronWalls:
    """A ``WallSource`` over cron fields; local days on the weekdays in ``excluded`` (Monday is 0) are left out."""

    def __init__(self, fields: CronFields, excluded: frozenset[int] = frozenset()) -> None:
        self.is_wild = fields.is_wild
        self._minutes = tuple(hour * 60 + minute for hour in fields.hours for minute in fields.minutes)
        self._deltas = tuple(_OFFSETS[minute] for minute in self._minutes)
        self._months = _MonthTable(fields, excluded)
        self._years: dict[int, tuple[int, ...]] = {}

    def between(self, start: int, end: int) -> Iterator[tuple[datetime, Sequence[timedelta]]]:
        first, last = start // DAY, (end - 1) // DAY
        for day in self._days(first, last):
            deltas: Sequence[timedelta] = self._deltas
            if day in (first, last):
                low = bisect_left(self._minutes, start - day * DAY)
                deltas = deltas[low : bisect_left(self._minutes, end - day * DAY)]
                if not deltas:
                    continue
            yield wall_of(day * DAY), deltas

    def span(self) -> tuple[int, int]:
        return (0, 0) if self._months.is_empty() else (year_start(FIRST_YEAR), year_start(LAST_YEAR))

    def _days(self, first: int, last: int) -> Iterator[int]:
        """Matching local days, counted from 1970, from ``first`` to ``last`` inclusive."""
        for year in range(year_of(first * DAY), year_of(last * DAY) + 1):
            days = self._years.get(year)
            if days is None:
                if len(self._years) >= _KEPT_YEARS:
                    self._years.clear()
                days = self._years[year] = self._months.days_of(year)
            yield from days[bisect_left(days, first) : bisect_right(days, last)]


class _MonthTable:
    """The matching days of any month, worked out once for each length and first weekday a month can have."""

    def __init__(self, fields: CronFields, excluded: frozenset[int]) -> None:
        self._fields = fields
        self._excluded = sum(1 << (weekday + 1) % 7 for weekday in excluded)
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    def days_of(self, year: int) -> tuple[int, ...]:
        days: list[int] = []
        for month in self._fields.months:
            first = date(year, month, 1).toordinal() - _EPOCH_DAY
            days.extend([first + offset for offset in self._offsets((first + 4) % 7, _length(year, month))])
        return tuple(days)

    def is_empty(self) -> bool:
        """Whether no month of any year has a matching day; every month begins on every weekday in some year."""
        return not any(
            self._offsets(weekday, length)
            for month in self._fields.months
            for length in {_length(2023, month), _length(2024, month)}
            for weekday in range(7)
        )

    def _offsets(self, weekday: int, length: int) -> tuple[int, ...]:
        """Days after the 1st, for a month of that length whose 1st is that weekday (Sunday is 0)."""
        known = self._known.get((weekday, length))
        if known is None:
            days = range(1, length + 1)
            known = tuple(day - 1 for day in days if self._matches(day, (weekday + day - 1) % 7, length))
            self._known[weekday, length] = known
        return known

    def _matches(self, day: int, weekday: int, length: int) -> bool:
        fields = self._fields
        if self._excluded >> weekday & 1:
            return False
        by_day = bool(fields.days >> day & 1) or (fields.last_day and day == length)
        by_weekday = (
            bool(fields.weekdays >> weekday & 1)
            or (weekday, (day + 6) // 7) in fields.nth_weekdays
            or (bool(fields.last_weekdays >> weekday & 1) and day + 7 > length)
        )
        return by_day or by_weekday if fields.joins_days_with_or else by_day and by_weekday


def _length(year: int, month: int) -> int:
    following = date(year + month // 12, month % 12 + 1, 1)
    return (following - date(year, month, 1)).days

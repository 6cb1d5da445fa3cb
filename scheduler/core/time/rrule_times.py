"""The local times a recurrence names, computed period by period in windows of a year or a month.

A window costs the same whether the rule matches in it or not, so no text can hang a search: ``dateutil``, which walks
on to the year 9999 when nothing matches, only checks this module in the tests. Windows are kept. A rule without a date
in the ``SEARCH_YEARS`` after its DTSTART counts as never firing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import cached_property
from itertools import product

from scheduler.core.time.localtime import EPOCH_WALL, LAST_YEAR, NO_DELTA, minute_of_wall, wall_of, year_start
from scheduler.core.time.rrule import Recurrence

SEARCH_YEARS = 200

_KEPT_TIMES = 100_000
_SECOND = timedelta(seconds=1)
_ONE_DAY = timedelta(days=1)
_MIDNIGHT = EPOCH_WALL.time()

Window = tuple[int, int]
"""A year with 0, or a year and a month."""


class RruleTimes:
    """A ``LocalTimes`` over a recurrence; HOURLY rules are wild, all slower ones fixed."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._recurrence = recurrence
        self._rule = _Rule(recurrence)
        self.is_wild = recurrence.frequency == "HOURLY"
        self._windows: dict[Window, tuple[datetime, ...]] = {}
        self._kept = 0

    def between(self, start: int, end: int) -> Iterator[tuple[datetime, Sequence[timedelta]]]:
        first, last = self._span
        start, end = max(start, first), min(end, last)
        if start >= end:
            return
        low, high = wall_of(start), wall_of(end)
        for window in self._windows_between(low, high - _SECOND):
            times = self._times(window)
            for wall in times[bisect_left(times, low) : bisect_left(times, high)]:
                yield wall, NO_DELTA

    def first_from(self, minute: int) -> int | None:
        first, last = self._span
        begun = wall_of(max(minute, first))
        for window in self._windows_between(begun, wall_of(last)) if minute < last else ():
            times = self._times(window)
            if times and times[-1] >= begun:
                return minute_of_wall(times[bisect_left(times, begun)])
        return None

    def last_until(self, minute: int) -> int | None:
        first, last = self._span
        ended = wall_of(min(minute, last))
        for window in reversed(list(self._windows_between(wall_of(first), ended))) if minute > first else ():
            times = self._times(window)
            if times and times[0] <= ended:
                return minute_of_wall(times[bisect_right(times, ended) - 1])
        return None

    @cached_property
    def _span(self) -> tuple[int, int]:
        """Local minutes ``[start, end)`` outside which there is no date."""
        recurrence = self._recurrence
        if recurrence.count is not None:
            times = self._counted
            return (minute_of_wall(times[0]), minute_of_wall(times[-1]) + 1) if times else (0, 0)
        first = self._first()
        if first is None:
            return (0, 0)
        if recurrence.until is None:
            return minute_of_wall(first), year_start(LAST_YEAR)
        return minute_of_wall(first), minute_of_wall(max(recurrence.until, *recurrence.extra, first)) + 1

    def _first(self) -> datetime | None:
        """The earliest date, if there is one within the search."""
        start = min((self._recurrence.start, *self._recurrence.extra))
        for window in self._windows_between(start, self._search_end):
            times = self._times(window)
            if times:
                return times[0]
        return None

    @cached_property
    def _counted(self) -> tuple[datetime, ...]:
        """All dates of a rule with COUNT; what EXDATE leaves out has been counted, RDATE has not."""
        recurrence = self._recurrence
        count = recurrence.count or 0
        times: list[datetime] = []
        for window in self._windows_between(recurrence.start, self._search_end):
            times += self._rule.between(*_bounds(window))
            if len(times) >= count:
                break
        return self._with_single_dates(times[:count], recurrence.extra)

    @property
    def _search_end(self) -> datetime:
        return self._recurrence.start + SEARCH_YEARS * 366 * _ONE_DAY

    def _times(self, window: Window) -> tuple[datetime, ...]:
        known = self._windows.get(window)
        if known is None:
            if self._kept > _KEPT_TIMES:
                self._windows.clear()
                self._kept = 0
            known = self._windows[window] = self._computed(*_bounds(window))
            self._kept += len(known) + 1
        return known

    def _computed(self, start: datetime, end: datetime) -> tuple[datetime, ...]:
        if self._recurrence.count is not None:
            counted = self._counted
            return counted[bisect_left(counted, start) : bisect_left(counted, end)]
        extra = [wall for wall in self._recurrence.extra if start <= wall < end]
        return self._with_single_dates(self._rule.between(start, end), extra)

    def _with_single_dates(self, times: Sequence[datetime], extra: Sequence[datetime]) -> tuple[datetime, ...]:
        left_out, days = self._recurrence.left_out, self._recurrence.left_out_days
        kept = (wall for wall in {*times, *extra} if wall not in left_out and wall.date() not in days)
        return tuple(sorted(kept))

    def _windows_between(self, low: datetime, high: datetime) -> Iterator[Window]:
        if not self._rule.is_dense:
            yield from ((year, 0) for year in range(low.year, high.year + 1))
            return
        for month in range(low.year * 12 + low.month - 1, high.year * 12 + high.month):
            yield month // 12, month % 12 + 1


class _Rule:
    """The RRULE alone, with everything written out that DTSTART implies (RFC 5545, 3.3.10)."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._recurrence = recurrence
        self._days = _DayFilter(recurrence)
        start, by = recurrence.start, recurrence.by
        is_hourly = recurrence.frequency == "HOURLY"
        self._hours = by.get("BYHOUR", tuple(range(24)) if is_hourly else (start.hour,))
        times = product(
            (0,) if is_hourly else self._hours, by.get("BYMINUTE", (start.minute,)), by.get("BYSECOND", (start.second,))
        )
        self._times = [timedelta(hours=hour, minutes=minute, seconds=second) for hour, minute, second in times]
        self.is_dense = len(self._times) * (len(self._hours) if is_hourly else 1) > 12

    def between(self, start: datetime, end: datetime) -> list[datetime]:
        """What the rule names in ``[start, end)``, in order."""
        recurrence = self._recurrence
        start = max(start, recurrence.start)
        last = end - _SECOND if recurrence.until is None else min(end - _SECOND, recurrence.until)
        found: list[datetime] = []
        if start <= last:
            for period in self._periods(start.date(), last.date()):
                found += [wall for wall in self._chosen(period) if start <= wall <= last]
        return found

    def _periods(self, first: date, last: date) -> Iterator[Sequence[datetime]]:
        """All times of each period that touches the days from ``first`` to ``last``, periods without times left out."""
        if self._recurrence.frequency in ("DAILY", "HOURLY"):
            for day in self._days.between(first, last):
                midnight = datetime.combine(day, _MIDNIGHT)
                for hour in self._hours_of(day):
                    yield [midnight + timedelta(hours=hour) + time for time in self._times]
            return
        for begun, ended in self._ranges(first, last):
            if "BYSETPOS" not in self._recurrence.by:
                begun, ended = max(begun, first), min(ended, last)
            days = [datetime.combine(day, _MIDNIGHT) for day in self._days.between(begun, ended)]
            if days:
                yield [midnight + time for midnight in days for time in self._times]

    def _chosen(self, times: Sequence[datetime]) -> Sequence[datetime]:
        """The times of one period that BYSETPOS picks."""
        places = self._recurrence.by.get("BYSETPOS")
        if places is None:
            return times
        return sorted({times[place - (place > 0)] for place in places if abs(place) <= len(times)})

    def _hours_of(self, day: date) -> Iterable[int]:
        """The hours at which periods begin on a day: those ``INTERVAL`` hours apart, or midnight each so many days."""
        start = self._recurrence.start
        if self._recurrence.frequency == "DAILY":
            return () if (day - start.date()).days % self._recurrence.interval else (0,)
        begun = (day - start.date()).days * 24 - start.hour
        return (hour for hour in self._hours if (begun + hour) % self._recurrence.interval == 0)

    def _ranges(self, first: date, last: date) -> Iterator[tuple[date, date]]:
        """First and last day of the periods that touch ``first`` to ``last``, ``INTERVAL`` counted from DTSTART."""
        frequency, interval, start = (
            self._recurrence.frequency,
            self._recurrence.interval,
            self._recurrence.start.date(),
        )
        if frequency == "YEARLY":
            for year in _steps(start.year, first.year, last.year, interval):
                yield date(year, 1, 1), date(year, 12, 31)
        elif frequency == "MONTHLY":
            for month in _steps(_month(start), _month(first), _month(last), interval):
                yield date(month // 12, month % 12 + 1, 1), _last_of_month(month // 12, month % 12 + 1)
        else:
            begun = start - (start.weekday() - self._recurrence.week_start) % 7 * _ONE_DAY
            for week in _steps(0, (first - begun).days // 7, (last - begun).days // 7, interval):
                yield begun + week * 7 * _ONE_DAY, begun + (week * 7 + 6) * _ONE_DAY


class _DayFilter:
    """Which days the BY parts allow; a day must pass every part that is given."""

    def __init__(self, recurrence: Recurrence) -> None:
        by, start, frequency = recurrence.by, recurrence.start, recurrence.frequency
        self._months = by.get("BYMONTH")
        self._month_days = by.get("BYMONTHDAY")
        self._weekdays = recurrence.weekdays
        self._year_days, self._weeks = by.get("BYYEARDAY"), by.get("BYWEEKNO")
        self._week_start = recurrence.week_start
        if not (self._month_days or self._weekdays or self._year_days or self._weeks):
            if frequency == "YEARLY":
                self._months = self._months or (start.month,)
            if frequency in ("YEARLY", "MONTHLY"):
                self._month_days = (start.day,)
            if frequency == "WEEKLY":
                self._weekdays = ((start.weekday(), 0),)
        self._counts_in_year = frequency == "YEARLY" and self._months is None

    def between(self, first: date, last: date) -> Iterator[date]:
        """The allowed days from ``first`` to ``last``."""
        if self._months is not None:
            return (
                day
                for begun, ended in self._month_ranges(first, last)
                for day in _days(begun, ended)
                if self._allows(day)
            )
        return (day for day in _days(first, last) if self._allows(day))

    def _month_ranges(self, first: date, last: date) -> Iterator[tuple[date, date]]:
        for month in range(_month(first), _month(last) + 1):
            if month % 12 + 1 in (self._months or ()):
                year, number = month // 12, month % 12 + 1
                yield max(first, date(year, number, 1)), min(last, _last_of_month(year, number))

    def _allows(self, day: date) -> bool:
        if self._month_days is not None and not _holds(
            self._month_days, day.day, _last_of_month(day.year, day.month).day
        ):
            return False
        if self._weekdays and not self._allows_weekday(day):
            return False
        if self._year_days is not None:
            ordinal, size = day.timetuple().tm_yday, date(day.year, 12, 31).timetuple().tm_yday
            if not _holds(self._year_days, ordinal, size):
                return False
        return self._weeks is None or _holds(self._weeks, *_week_of(day, self._week_start))

    def _allows_weekday(self, day: date) -> bool:
        numbers = [number for weekday, number in self._weekdays if weekday == day.weekday()]
        if not numbers or 0 in numbers:
            return bool(numbers)
        if self._counts_in_year:
            position, size = day.timetuple().tm_yday, date(day.year, 12, 31).timetuple().tm_yday
        else:
            position, size = day.day, _last_of_month(day.year, day.month).day
        return (position + 6) // 7 in numbers or -((size - position) // 7 + 1) in numbers


def _holds(allowed: tuple[int, ...], value: int, size: int) -> bool:
    """Whether a list that may count from the end, -1 being the last of ``size``, holds the value."""
    return value in allowed or value - size - 1 in allowed


def _week_of(day: date, week_start: int) -> tuple[int, int]:
    """Number of the week ``day`` is in, and how many weeks its year has; week 1 is the first with four days."""
    middle = day + (3 - (day.weekday() - week_start) % 7) * _ONE_DAY
    number = (middle.timetuple().tm_yday + 6) // 7
    days_left = date(middle.year, 12, 31).timetuple().tm_yday - middle.timetuple().tm_yday
    return number, number + days_left // 7


def _steps(origin: int, first: int, last: int, interval: int) -> range:
    """``origin`` and every ``interval`` after it, from ``first`` to ``last`` inclusive."""
    begun = max(origin, first)
    return range(begun + (origin - begun) % interval, last + 1, interval)


def _days(first: date, last: date) -> Iterator[date]:
    return (date.fromordinal(day) for day in range(first.toordinal(), last.toordinal() + 1))


def _month(day: date) -> int:
    return day.year * 12 + day.month - 1


def _last_of_month(year: int, month: int) -> date:
    return date(year + month // 12, month % 12 + 1, 1) - _ONE_DAY


def _bounds(window: Window) -> tuple[datetime, datetime]:
    year, month = window
    start = EPOCH_WALL.replace(year=year, month=month or 1)
    end = EPOCH_WALL.replace(year=year + (month in (0, 12)), month=month % 12 + 1 if month else 1)
    return start, end

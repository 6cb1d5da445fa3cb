"""Local days a schedule leaves out, and where a date moves when it falls on one. Dates in, dates out; no instants."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cached_property

from scheduler.core.models import CalendarRule, Shift

SEARCH_DAYS = 366
"""How far a moved date looks for a day that is not excluded; farther than that the date is not expected at all."""

_ONE_DAY = timedelta(days=1)


def excluding_calendar(rule: CalendarRule | None, day: date) -> str | None:
    """The name of the first calendar that excludes the local day, None if the day counts."""
    for calendar in rule.excluded if rule else ():
        if day.weekday() in calendar.weekdays or day in calendar.dates:
            return calendar.name
    return None


class Exclusions:
    """The calendars of one rule as sets, for asking about many days."""

    def __init__(self, rule: CalendarRule) -> None:
        self.shift = rule.shift
        self.weekdays = frozenset().union(*(calendar.weekdays for calendar in rule.excluded))
        self.dates = frozenset().union(*(calendar.dates for calendar in rule.excluded))

    @property
    def excludes_everything(self) -> bool:
        """Whether no day is left, so that nothing is ever expected."""
        return len(self.weekdays) == 7

    def excludes(self, day: date) -> bool:
        return day in self.dates or day.weekday() in self.weekdays

    def moved(self, day: date) -> date | None:
        """The day on which a date of ``day`` is due: itself, or where ``shift`` moves it; None: not expected."""
        if not self.excludes(day):
            return day
        if self.shift is Shift.SKIP:
            return None
        step = _ONE_DAY if self.shift is Shift.NEXT else -_ONE_DAY
        for _ in range(SEARCH_DAYS):
            day += step
            if not self.excludes(day):
                return day
        return None

    @cached_property
    def longest_run(self) -> int:
        """The most days in a row that are excluded, at most ``SEARCH_DAYS``."""
        if self.excludes_everything:
            return SEARCH_DAYS
        starts = [*self.dates, *(date(2024, 1, day) for day in range(1, 8))]
        return max(self._run_from(day) for day in starts)

    def _run_from(self, day: date) -> int:
        if self.excludes(day - _ONE_DAY) and day in self.dates and (day - _ONE_DAY) in self.dates:
            return 0
        while self.excludes(day - _ONE_DAY):
            day -= _ONE_DAY
        length = 0
        while length < SEARCH_DAYS and self.excludes(day + length * _ONE_DAY):
            length += 1
        return length

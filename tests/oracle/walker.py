"""A walker over UTC minutes that knows cron and docs/decisions/0003 and nothing else: slow, short, independent.

It asks ``zoneinfo`` what the clock shows in each minute and applies the rule to that list of wall-clock minutes. Only
plain expressions are understood: numbers, ranges, steps and lists.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

zoneinfo.reset_tzpath(to=[])

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DAY = 1440


def shown(zone: str, start: int, end: int) -> list[int]:
    """What the clock of ``zone`` shows in each UTC minute of ``[start, end)``, as local minutes since 1970."""
    place = zoneinfo.ZoneInfo(zone)
    local = []
    for minute in range(start, end):
        offset = datetime.fromtimestamp(minute * 60, place).utcoffset()
        assert offset is not None
        local.append((minute * 60 + offset.days * 86_400 + offset.seconds) // 60)
    return local


class Clock:
    """What a zone shows over a range of UTC minutes: every minute, whether it is new, and what was jumped over."""

    def __init__(self, local: Sequence[int], start: int) -> None:
        self.local = list(enumerate(local, start))
        self.new: list[tuple[int, int]] = []
        self.jumps: list[tuple[int, range]] = []
        already_shown: set[int] = set()
        before = local[0] - 1
        for minute, shows in self.local:
            if shows not in already_shown:
                self.new.append((minute, shows))
            if shows > before + 1:
                self.jumps.append((minute, range(before + 1, shows)))
            already_shown.add(shows)
            before = shows


def walk(expression: str, clock: Clock) -> list[int]:
    """The UTC minutes at which the rule fires while the clock runs."""
    times, day_matches = times_of(expression), day_test(expression)
    minute_text, hour_text = expression.split()[:2]
    is_wild = minute_text[0] == "*" or hour_text[0] == "*"
    fired = {
        minute
        for minute, shows in (clock.local if is_wild else clock.new)
        if times[shows % DAY] and day_matches(shows // DAY)
    }
    if not is_wild:
        for minute, skipped in clock.jumps:
            if any(times[shows % DAY] and day_matches(shows // DAY) for shows in skipped):
                fired.add(minute)
    return sorted(fired)


@lru_cache(maxsize=4096)
def times_of(expression: str) -> list[bool]:
    """Which minutes of a day the first two fields match."""
    minute, hour = expression.split()[:2]
    minutes, hours = field(minute, 0, 59), field(hour, 0, 23)
    return [time // 60 in hours and time % 60 in minutes for time in range(DAY)]


@lru_cache(maxsize=4096)
def day_test(expression: str) -> Callable[[int], bool]:
    """Whether the other three fields match a day since 1970; days are remembered."""
    day_text, month_text, weekday_text = expression.split()[2:]
    days, months = field(day_text, 1, 31), field(month_text, 1, 12)
    weekdays = {value % 7 for value in field(weekday_text, 0, 7)}
    needs_both = day_text[0] == "*" or weekday_text[0] == "*"

    @lru_cache(maxsize=4096)
    def matches(number: int) -> bool:
        day = date.fromordinal(EPOCH_ORDINAL + number)
        by_day, by_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        return day.month in months and (by_day and by_weekday if needs_both else by_day or by_weekday)

    return matches


@lru_cache(maxsize=4096)
def field(text: str, low: int, high: int) -> frozenset[int]:
    """The values one field of an expression stands for."""
    values: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        values.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(values)


def instant(minute: int) -> datetime:
    """The UTC instant of a minute since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)

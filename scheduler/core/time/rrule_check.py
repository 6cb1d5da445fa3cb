"""What dateutil makes of a recurrence, for lint: people who come from tools built on it are told where it differs.

Nothing is decided here. dateutil walks to the end of its calendar, the year 9999, when it finds no match, which takes
minutes. So it is asked about a twin of the recurrence a few years before that end: moved by a whole number of weeks to
a year with the same weekdays and the same leap years around it, where it can walk for 43 years at the most.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import islice, zip_longest
from typing import Any

from scheduler.core.time.localtime import minute_of_wall
from scheduler.core.time.rrule import Recurrence
from scheduler.core.time.rrule_times import RruleTimes

COMPARED = 5
SPAN = timedelta(days=6 * 366)
"""How many dates are compared, and within which time from the first."""

_SPAN_YEARS = 7
_LONGEST_WAIT = 8
"""Years from DTSTART to the first date; rules that wait longer are not compared."""

_LAST_TWIN = 9999 - _SPAN_YEARS
"""The latest year a twin's dates may begin in: they must end before dateutil's calendar does."""

_REGULAR_YEARS = range(1902, 2100 - _SPAN_YEARS - _LONGEST_WAIT)
"""Years around which every fourth is a leap year, as from 9902 on."""


def first_difference(recurrence: Recurrence) -> tuple[datetime | None, datetime | None] | None:
    """The first of the RRULE's local times that differ: ours and dateutil's, None for none within the span.

    None if they agree or cannot be compared. COUNT, UNTIL, RDATE and EXDATE only cut or add, and are left out.
    """
    bare = replace(
        recurrence,
        count=None,
        until=None,
        until_instant=None,
        extra=(),
        left_out=frozenset(),
        left_out_days=frozenset(),
    )
    ours = _first_times(bare)
    if not ours or bare.start.year not in _REGULAR_YEARS or ours[0].year - bare.start.year > _LONGEST_WAIT:
        return None
    distance = _distance_to_twin(bare.start.year, ours[0].year - bare.start.year)
    theirs = _times_of_dateutil(bare, distance, until=ours[0] + SPAN)
    return next((pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1]), None)


def _first_times(recurrence: Recurrence) -> list[datetime]:
    times = RruleTimes(recurrence)
    first = times.first_from(minute_of_wall(recurrence.start))
    if first is None:
        return []
    batches = times.between(first, first + SPAN // timedelta(minutes=1))
    return [base + delta for base, deltas in islice(batches, COMPARED) for delta in deltas]


@lru_cache(maxsize=256)
def _distance_to_twin(year: int, wait: int) -> timedelta:
    """From a year to the latest one that looks like it and leaves room for the wait; one in 28 years does."""
    distances = (
        date(twin, 1, 1) - date(year, 1, 1) for twin in range(_LAST_TWIN - wait, 0, -1) if twin % 4 == year % 4
    )
    return next(distance for distance in distances if distance.days % 7 == 0)


def _times_of_dateutil(recurrence: Recurrence, distance: timedelta, until: datetime) -> list[datetime]:
    from dateutil import rrule  # not when modules load: only lint asks

    parts: dict[str, Any] = {name.lower(): values for name, values in recurrence.by.items()}
    if recurrence.weekdays:
        parts["byweekday"] = [rrule.weekday(day, number or None) for day, number in recurrence.weekdays]
    rule = rrule.rrule(
        getattr(rrule, recurrence.frequency),
        dtstart=recurrence.start + distance,
        interval=recurrence.interval,
        wkst=recurrence.week_start,
        until=until + distance,
        **parts,
    )
    return [wall - distance for wall in islice(rule, COMPARED)]

"""Which date of a schedule a person means by a local day, a local time or an instant. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from scheduler.core.ledger.history import Expected, History, expected_between
from scheduler.core.time.localtime import instant_of, local_clock
from scheduler.core.time.moments import instant_text
from scheduler.core.time.occurrences import next_occurrences, previous_occurrence

Moment = date | datetime
"""A local day, a naive local time, or an instant in UTC; ``core.time.moments.parse_moment`` makes them."""

_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)


def matching_dates(history: History, moment: Moment) -> list[Expected]:
    """Every expected date the moment can stand for, oldest first: by instant, by local time, or of the local day."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return expected_between(history, moment - _TICK, moment)
    start, end = around(history, moment)
    dates = expected_between(history, start, end)
    if not isinstance(moment, datetime):
        return [found for found in dates if found.occurrence.local_date == moment]
    zone = local_clock(timezone_of(history)).zone
    return [
        found
        for found in dates
        if moment in (found.occurrence.wall, found.occurrence.logical_date.astimezone(zone).replace(tzinfo=None))
    ]


def nearest_dates(history: History, moment: Moment) -> list[datetime]:
    """The last date of the newest rule before the moment and the next two after it, as far as they are expected."""
    timing = history.spans[-1].timing
    start, end = around(history, moment)
    at = start + (end - start) / 3
    before = previous_occurrence(timing, at)
    found = [before] if before else []
    found += next_occurrences(timing, at, 2)
    return [near.logical_date for near in found if near.logical_date > history.floor]


def around(history: History, moment: Moment) -> tuple[datetime, datetime]:
    """A range that holds every date the moment can stand for."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment, moment
    wall = moment if isinstance(moment, datetime) else datetime.combine(moment, time())
    at = instant_of(local_clock(timezone_of(history)), wall)
    return at - _DAY, at + 2 * _DAY


def timezone_of(history: History) -> str:
    """The zone in which local days and times of this schedule are read: the newest revision's."""
    return history.spans[-1].timing.timezone


def shown_dates(history: History, dates: Sequence[datetime]) -> str:
    """Instants for a message, with their local time where that differs."""
    zone = local_clock(timezone_of(history)).zone
    return ", ".join(
        instant_text(at)
        if timezone_of(history) == "UTC"
        else f"{instant_text(at)} ({at.astimezone(zone):%Y-%m-%d %H:%M} local)"
        for at in dates
    )


def shown_moment(moment: Moment) -> str:
    """The moment as a person would write it."""
    if isinstance(moment, datetime):
        return instant_text(moment) if moment.tzinfo is UTC else moment.isoformat()
    return str(moment)

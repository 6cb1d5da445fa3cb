"""Dates, local times and instants as people write them, and instants as we write them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import TypeVar

Day = TypeVar("Day", date, datetime)

EXAMPLES = "2026-01-31, 2026-01-31T08:30 or 2026-01-31T08:30:00Z"
YEARS = range(1900, 2201)

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(Z|[+-]\d{2}:\d{2})?",
    re.ASCII,
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)


def parse_moment(text: str) -> date | datetime:
    """The moment ``text`` names: a ``date``, a naive ``datetime`` for a local time, an aware one in UTC for an instant.

    Raises ValueError with a sentence that names what to write instead.
    """
    match = _MOMENT.fullmatch(text)
    if not match and not _DAY.fullmatch(text):
        raise ValueError(_refusal(text))
    try:
        if not match:
            return _in_range(date.fromisoformat(text))
        day, clock, offset = match.groups()
        moment = _in_range(datetime.fromisoformat(f"{day}T{clock}{offset or ''}"))
    except ValueError as error:
        raise ValueError(f'"{text}" is not a moment of the calendar: {error}') from error
    return moment.astimezone(UTC) if moment.tzinfo else moment


def parse_day(text: str) -> date:
    """The calendar day ``text`` names. Raises ValueError with a sentence."""
    if not _DAY.fullmatch(text):
        raise ValueError(f'"{text[:40]}" is not a date: write 2026-12-31')
    moment = parse_moment(text)
    return moment.date() if isinstance(moment, datetime) else moment


def instant_text(instant: datetime) -> str:
    """``instant`` as RFC 3339 in UTC: ``2026-03-29T01:00:00Z``, with microseconds only if there are any."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _in_range(moment: Day) -> Day:
    if moment.year not in YEARS:
        raise ValueError(f"the year must lie between {YEARS[0]} and {YEARS[-1]}")
    return moment


def _refusal(text: str) -> str:
    if clock := _CLOCK.fullmatch(text):
        hour, minute = int(clock[1]), int(clock[2])
        return f'"{text}" has no date: write {EXAMPLES}; for every day at that time use cron: "{minute} {hour} * * *"'
    return f'"{text[:40]}" is not a moment: write {EXAMPLES}'

"""RFC 5545 text to wall-clock times (being written)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from scheduler.errors import DefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    until_instant: datetime | None = None


def parse_recurrence(text: str, zone: ZoneInfo) -> Recurrence:
    raise DefinitionError("rrule is not available yet")


class RecurrenceWalls:
    is_wild = False

    def __init__(self, recurrence: Recurrence) -> None: ...
    def between(self, start: int, end: int) -> Iterator[tuple[datetime, Sequence[timedelta]]]:
        return iter(())

    def span(self) -> tuple[int, int]:
        return (0, 0)

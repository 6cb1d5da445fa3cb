"""Ranges as people give them: a local time that names two instants in the zone of a schedule is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from scheduler.core.models import RepeatRule
from scheduler.core.time.localtime import instant_of, local_clock
from scheduler.core.time.moments import instant_text
from scheduler.errors import ConfigError
from scheduler.storage.database import Connection
from scheduler.storage.schedules import ScheduleRow, all_schedules


def refuse_ambiguous(connection: Connection, moment: date | datetime, schedules: Sequence[str] | None) -> None:
    """Refuse a local time that happens twice in the zone of one of these schedules (None: of all in force).

    Raises ConfigError with the two instants.
    """
    if not isinstance(moment, datetime) or moment.tzinfo is not None:
        return
    for timezone in sorted({_timezone(row) for row in all_schedules(connection) if _is_asked(row, schedules)}):
        clock = local_clock(timezone)
        first, last = (instant_of(clock, moment, overlap) for overlap in (RepeatRule.FIRST, RepeatRule.LAST))
        if first != last:
            raise ConfigError(
                f"{moment.isoformat()} happens twice in {timezone}, at {instant_text(first)} and {instant_text(last)}; "
                "write one of these instants"
            )


def _is_asked(row: ScheduleRow, schedules: Sequence[str] | None) -> bool:
    if schedules is None:
        return row.retired_at is None
    return any(name in schedules for name in (row.name, *row.former_names))


def _timezone(row: ScheduleRow) -> str:
    timezone: str = row.definition["timing"]["timezone"]
    return timezone

"""What apply would change, or has changed, as lines for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from scheduler.core.time.moments import instant_text
from scheduler.interfaces.cli.output import counted

if TYPE_CHECKING:
    from scheduler.core.definitions.diff import Change, MovedDates

EFFECT_RANGE = timedelta(days=14)
DATES_SHOWN = 3
DATES_LISTED = 100
VALUE_LENGTH = 100
_INDENT = " " * 11


def describe_changes(changes: Sequence[Change]) -> list[str]:
    """Changes as lines for a person: one for each schedule, one more for each field that differs."""
    lines: list[str] = []
    for change in changes:
        was = f" (was {change.old_name})" if change.kind == "renamed" else ""
        lines.append(f"{change.kind:<8} {change.name}{was}")
        lines += [f"{_INDENT}{field.field}: {_value(field.old)} -> {_value(field.new)}" for field in change.fields]
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a change does to the coming dates of a schedule, and how many jobs of it are unfinished."""

    dates: MovedDates
    unfinished: int


def effect_of(change: Change, now: datetime, unfinished: int) -> Effect:
    """The effect of a change on the dates of ``EFFECT_RANGE`` after ``now``."""
    from scheduler.core.definitions.diff import ChangeKind, moved_dates

    # A retired schedule that comes back has no dates now, whatever its last definition was.
    old = change.old.timing if change.old is not None and change.kind is not ChangeKind.REVIVED else None
    new = change.new.timing if change.new is not None else None
    return Effect(dates=moved_dates(old, new, now, now + EFFECT_RANGE), unfinished=unfinished)


def effect_document(effect: Effect) -> dict[str, Any]:
    """An effect as JSON: counts, and the first dates of each kind."""
    dates = effect.dates
    return {
        "dates": {
            "until": dates.until,
            "appear": len(dates.appear),
            "vanish": len(dates.vanish),
            "move": len(dates.move),
            "first_appearing": list(dates.appear[:DATES_LISTED]),
            "first_vanishing": list(dates.vanish[:DATES_LISTED]),
            "first_moving": [
                {"logical_date": pair.old.logical_date, "to": pair.new.logical_date, "due_at": pair.new.due_at}
                for pair in dates.move[:DATES_LISTED]
            ],
        },
        "unfinished_jobs": effect.unfinished,
    }


def describe_effect(effect: Effect) -> Iterator[str]:
    """An effect as lines for a person; none when nothing comes of the change."""
    dates = effect.dates
    moved = [f"{instant_text(pair.old.logical_date)} to {instant_text(pair.new.due_at)}" for pair in dates.move]
    for what, found in (
        ("appear", [instant_text(at) for at in dates.appear]),
        ("vanish", [instant_text(at) for at in dates.vanish]),
        ("move", moved),
    ):
        if found:
            verb = f"{what}s" if len(found) == 1 else what
            listed = ", ".join(found[:DATES_SHOWN]) + (", ..." if len(found) > DATES_SHOWN else "")
            yield f"{_INDENT}{counted(len(found), 'date')} {verb} until {dates.until:%Y-%m-%d}: {listed}"
    if effect.unfinished:
        yield f"{_INDENT}{counted(effect.unfinished, 'job')} of it unfinished: they keep what they were made with"


def change_document(change: Change) -> dict[str, Any]:
    """A change as JSON."""
    fields = [{"field": field.field, "old": field.old, "new": field.new} for field in change.fields]
    return {"kind": str(change.kind), "name": change.name, "old_name": change.old_name, "fields": fields}


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_LENGTH else f"{text[: VALUE_LENGTH - 3]}..."

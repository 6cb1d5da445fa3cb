"""The product beside the walker: around one change of the clock, for every kind of expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from scheduler.core.time.occurrences import firings
from tests.oracle.tzif import Change, changes, originals
from tests.oracle.walker import EPOCH_ORDINAL, Clock, instant, shown, walk

FIRST, END = datetime(1970, 1, 1, tzinfo=UTC).timestamp(), datetime(2038, 1, 1, tzinfo=UTC).timestamp()

BEFORE, AFTER, LOOK_BACK = 20 * 60, 30 * 60, 28 * 60
"""Minutes compared on both sides of a change, and walked before them to know what has been shown already."""


class Moment(NamedTuple):
    """The local times around a change that expressions are made from."""

    minute: int
    hour: int
    edge_minute: int
    edge_hour: int
    day: int
    month: int
    weekday: int


KINDS: dict[str, Callable[[Moment], str]] = {
    "every minute": lambda m: "* * * * *",
    "every quarter": lambda m: "*/15 * * * *",
    "every seventh minute": lambda m: "*/7 * * * *",
    "hourly": lambda m: "0 * * * *",
    "second hours": lambda m: "0 */2 * * *",
    "half past third hours": lambda m: "30 */3 * * *",
    "minutes of one hour": lambda m: f"* {m.hour} * * *",
    "daily inside": lambda m: f"{m.minute} {m.hour} * * *",
    "daily at the edge": lambda m: f"{m.edge_minute} {m.edge_hour} * * *",
    "midnight": lambda m: "0 0 * * *",
    "noon": lambda m: "0 12 * * *",
    "weekdays at nine": lambda m: "0 9 * * 1-5",
    "tens of some hours": lambda m: "0-59/10 0-4,22,23 * * *",
    "all minutes, fixed": lambda m: "0-59 0-23 * * *",
    "day or weekday": lambda m: f"{m.minute} {m.hour} {m.day} * {(m.weekday + 1) % 7}",
    "day and weekday": lambda m: f"{m.minute} {m.hour} */2 * {m.weekday}",
    "that day of the month": lambda m: f"{m.edge_minute},{m.minute} {m.hour} {m.day} {m.month} *",
    "that weekday": lambda m: f"{m.minute} 0-23/3,{m.hour} * * {m.weekday}",
}


class Difference(NamedTuple):
    """A range in which the two disagree."""

    zone: str
    at: str
    kind: str
    expression: str
    product: list[str]
    walker: list[str]


Walked = dict[object, dict[str, tuple[str, list[datetime]]]]
"""What the walker said, by what the clock showed: expression and firings of each kind."""


def all_changes(of: Sequence[str]) -> list[Change]:
    """Every change of those zones from 1970 to 2037."""
    return [change for zone in of for change in changes(zone) if FIRST <= change.at < END]


def differences(change: Change, walked: Walked) -> Iterator[Difference]:
    """Where product and walker differ around one change; ``walked`` remembers walks over equal clocks."""
    middle = -(-change.at // 60)
    start, end = middle - BEFORE, middle + AFTER
    local = _shown(originals()[change.zone], start - LOOK_BACK, end)
    jumps = tuple((index, local[index]) for index in range(1, len(local)) if local[index] != local[index - 1] + 1)
    moment = _moment(change)
    key = (start, local[0], jumps, moment)
    if key not in walked:
        clock = Clock(local, start - LOOK_BACK)
        expressions = {kind: make(moment) for kind, make in KINDS.items()}
        walked[key] = {
            kind: (expression, [instant(minute) for minute in walk(expression, clock) if minute >= start])
            for kind, expression in expressions.items()
        }
    for kind, (expression, expected) in walked[key].items():
        found = list(firings(expression, change.zone, instant(start - 1), instant(end - 1)))
        if found != expected:
            yield Difference(
                change.zone,
                str(instant(middle)),
                kind,
                expression,
                [str(at) for at in found],
                [str(at) for at in expected],
            )


@lru_cache(maxsize=256)
def _shown(zone: str, start: int, end: int) -> list[int]:
    """What the clock shows, remembered for the zones whose files are equal; the product is asked for each of them."""
    return shown(zone, start, end)


def _moment(change: Change) -> Moment:
    """A time in the middle of what is skipped or repeated, and the first one."""
    edge = (change.at + min(change.before, change.after)) // 60
    inside = edge + abs(change.after - change.before) // 120
    day = datetime.fromordinal(EPOCH_ORDINAL) + timedelta(minutes=inside)
    return Moment(
        minute=inside % 60, hour=inside // 60 % 24, edge_minute=edge % 60, edge_hour=edge // 60 % 24,
        day=day.day, month=day.month, weekday=day.isoweekday() % 7,
    )  # fmt: skip

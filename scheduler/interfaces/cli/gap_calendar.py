"""The calendar of gaps: one line a schedule, one character a day, for people on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

from scheduler.core.ledger.gaps import GapKind
from scheduler.interfaces.cli.output import printable

if TYPE_CHECKING:
    from scheduler.core.ledger.gaps import Gap
    from scheduler.services.gaps import GapReport, GapRequest

DAYS_DRAWN = 400
SCHEDULES_DRAWN = 40
NAME_WIDTH = 30
LABEL = "2026-03-01"

MARKS = {
    GapKind.MISSING: "x",
    GapKind.UNDECIDED: "?",
    GapKind.MISSED: "!",
    GapKind.DEAD: "d",
    GapKind.SKIPPED: "s",
    GapKind.WAIVED: "w",
    GapKind.DONE: ".",
}
"""What stands for a day, the worst first: a day with several dates shows its worst one."""

_WORDS = {GapKind.DONE: "became a job", GapKind.DEAD: "its job is dead"}


def drawn_request(request: GapRequest) -> GapRequest:
    """The request whose gaps are all expected dates, each with its kind."""
    return replace(request, kinds=frozenset(GapKind))


def only(everything: GapReport, kinds: Set[GapKind]) -> GapReport:
    """The report on gaps of these kinds, from one on all dates; the others are settled."""
    gaps = [gap for gap in everything.gaps if gap.kind in kinds]
    missing = {each.schedule: 0 for each in everything.schedules}
    for gap in gaps:
        missing[gap.schedule] += 1
    return replace(
        everything,
        settled=everything.expected - len(gaps),
        gaps=gaps,
        schedules=[replace(each, settled=each.expected - missing[each.schedule]) for each in everything.schedules],
    )


def drawn(dates: Sequence[Gap], kinds: Set[GapKind], width: int) -> Iterator[str]:
    """The picture of all expected dates, in blocks that fit into ``width``, and the legend. Nothing without dates.

    Schedules with gaps of ``kinds`` come first. Long ranges show their last days only.
    """
    rows = _rows(dates, kinds)
    if not rows:
        return
    names = sorted(rows, key=lambda name: (not set(rows[name].values()) & kinds, name))
    last = max(day for marks in rows.values() for day in marks)
    first = max(min(day for marks in rows.values() for day in marks), last - timedelta(days=DAYS_DRAWN - 1))
    margin = min(NAME_WIDTH, max(map(len, names))) + 2
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    yield ""
    for start in range(0, len(days), per_line := max(len(LABEL), width - margin - 1)):
        block = days[start : start + per_line]
        yield " " * margin + _ruler(block)
        for name in names[:SCHEDULES_DRAWN]:
            marks = "".join(MARKS[rows[name][day]] if day in rows[name] else " " for day in block)
            yield f"{_shortened(name).ljust(margin)}{marks}".rstrip()
        yield ""
    if len(names) > SCHEDULES_DRAWN:
        yield f"and {len(names) - SCHEDULES_DRAWN} more schedules"
    shown = {kind for marks in rows.values() for kind in marks.values()}
    yield "  ".join(f"{mark} {_WORDS.get(kind, kind.value)}" for kind, mark in MARKS.items() if kind in shown)
    yield ""


def shown_counts(counts: Mapping[str, int]) -> str | None:
    """``3 missing, 1 missed``; None for none."""
    return ", ".join(f"{counts[kind]} {kind}" for kind in MARKS if counts.get(kind)) or None


def _rows(dates: Sequence[Gap], kinds: Set[GapKind]) -> Mapping[str, Mapping[date, GapKind]]:
    """The worst kind of each local day, by schedule; a kind that counts as a gap is worse than one that does not."""
    rank = {kind: (kind not in kinds, place) for place, kind in enumerate(MARKS)}
    rows: dict[str, dict[date, GapKind]] = {}
    for gap in dates:
        marks = rows.setdefault(gap.schedule, {})
        day = gap.expected.occurrence.local_date
        if day not in marks or rank[gap.kind] < rank[marks[day]]:
            marks[day] = gap.kind
    return rows


def _ruler(days: Sequence[date]) -> str:
    """Dates above the first day of the block and of each month, where there is room."""
    line = ""
    for place, day in enumerate(days):
        if (place == 0 or day.day == 1) and (place == 0 or place > len(line)) and place + len(LABEL) <= len(days):
            line = line.ljust(place) + day.isoformat()
    return line or days[0].isoformat()


def _shortened(name: str) -> str:
    text = printable(name)
    return text if len(text) <= NAME_WIDTH else f"{text[: NAME_WIDTH - 3]}..."

"""The calendar of gaps, drawn from plain values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from scheduler.core.ledger.gaps import DEFAULT_KINDS, Gap, GapKind
from scheduler.core.ledger.history import Expected
from scheduler.core.models import Occurrence
from scheduler.interfaces.cli.gap_calendar import drawn


def dates(schedule: str, first: str, kinds: str, hour: int = 2) -> list[Gap]:
    """One date a day from ``first`` on, of the kind that each letter stands for."""
    known = {"x": GapKind.MISSING, "!": GapKind.MISSED, "s": GapKind.SKIPPED, "d": GapKind.DEAD, ".": GapKind.DONE}
    return [
        Gap(schedule_id=1, schedule=schedule, kind=known[letter], expected=expected(date.fromisoformat(first), n, hour))
        for n, letter in enumerate(kinds)
        if letter != " "
    ]


def expected(first: date, days: int, hour: int) -> Expected:
    day = first + timedelta(days=days)
    at = datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
    return Expected(
        revision=1,
        occurrence=Occurrence(logical_date=at, due_at=at, interval_start=at, local_date=day, wall=None),
    )


def picture(*found: list[Gap], kinds: frozenset[GapKind] = DEFAULT_KINDS, width: int = 80) -> list[str]:
    return list(drawn([gap for each in found for gap in each], kinds, width))


def test_each_day_is_a_character_and_schedules_with_gaps_come_first() -> None:
    assert picture(dates("good", "2026-03-30", "...s."), dates("bad", "2026-03-30", ".x !.")) == [
        "",
        "      2026-03-30",
        "bad   .x !.",
        "good  ...s.",
        "",
        "x missing  ! missed  s skipped  . became a job",
        "",
    ]


def test_a_day_shows_its_worst_date_and_gaps_go_before_what_is_settled() -> None:
    found = (dates("a", "2026-03-30", "s!."), dates("a", "2026-03-30", "d.x", hour=3))

    assert picture(*found)[2] == "a  d!x"
    assert picture(*found, kinds=DEFAULT_KINDS | {GapKind.SKIPPED})[2] == "a  s!x"


def test_months_are_named_where_there_is_room() -> None:
    ruler, days = picture(dates("a", "2026-03-20", "." * 50))[1:3]

    assert ruler == "   2026-03-20  2026-04-01                    2026-05-01"[: len(ruler)]
    assert ruler.endswith("2026-04-01")
    assert days == "a  " + "." * 50


def test_a_long_range_wraps_and_shows_its_last_days() -> None:
    lines = picture(dates("a", "2024-01-01", "." * 500), width=104)

    assert [line for line in lines if line.startswith("a ")] == ["a  " + "." * 100] * 4
    assert lines[1].startswith("   2024-04-10")


def test_many_schedules_are_cut_and_long_names_shortened() -> None:
    lines = picture(*(dates(f"{n:03d}-{'y' * 90}", "2026-03-01", ".") for n in range(45)))

    assert lines[2] == "000-yyyyyyyyyyyyyyyyyyyyyyy...  ."
    assert "and 5 more schedules" in lines


def test_nothing_is_drawn_without_dates() -> None:
    assert picture() == []

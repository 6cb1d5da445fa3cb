"""Our recurrences beside dateutil's, as lint compares them: always answered, and equal for what both can read."""

from __future__ import annotations

import random
import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from scheduler.core.time import rrule_check
from scheduler.core.time.rrule import parse_recurrence
from scheduler.core.time.rrule_check import first_difference
from tests.unit.core.time.test_occurrences_rrule import _drawn


def difference(start: str, rule: str) -> tuple[datetime | None, datetime | None] | None:
    return first_difference(parse_recurrence(f"DTSTART:{start}\nRRULE:{rule}", ZoneInfo("UTC")))


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_drawn_rules_agree() -> None:
    chance = random.Random(9999)
    for _ in range(150):
        text = _drawn(chance)
        assert first_difference(parse_recurrence(text, ZoneInfo("UTC"))) is None, text


@pytest.mark.parametrize("year", [1902, 1904, 1999, 2000, 2023, 2024, 2025, 2026, 2084])
@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=YEARLY;BYYEARDAY=1,60,-1",
        "FREQ=YEARLY;BYWEEKNO=1,20,53;BYDAY=MO",
        "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9",
        "FREQ=MONTHLY;BYMONTHDAY=31",
        "FREQ=WEEKLY;INTERVAL=3;BYDAY=TU,SU",
        "FREQ=HOURLY;INTERVAL=7;BYDAY=MO",
    ],
)
def test_the_twin_near_the_end_of_the_calendar_has_the_same_days(year: int, rule: str) -> None:
    """A wrong distance would show as a difference: days of the week, leap days or week numbers would not fit."""
    assert difference(f"{year}0105T003000", rule) is None


def test_the_difference_is_named_from_both_sides() -> None:
    assert difference("20260107T090000", "FREQ=WEEKLY;BYDAY=MO,FR;BYSETPOS=1") == (
        wall("2026-01-12T09:00"),
        wall("2026-01-09T09:00"),
    )


@pytest.mark.parametrize(
    ("start", "rule"),
    [
        ("20260107T090000", "FREQ=DAILY;BYDAY=MO;BYSETPOS=2"),
        ("20260107T090000", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"),
        ("19000107T090000", "FREQ=DAILY"),
        ("22000107T090000", "FREQ=DAILY"),
        ("20000229T090000", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU"),
    ],
)
def test_what_cannot_be_compared_is_no_difference(start: str, rule: str) -> None:
    """Rules that never fire, begin where leap years are irregular, or wait for years for their first date."""
    assert difference(start, rule) is None


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=WEEKLY;BYDAY=MO;BYSETPOS=9",
        "FREQ=DAILY;BYDAY=MO;BYSETPOS=2",
        "FREQ=HOURLY;BYDAY=MO;BYSETPOS=2",
    ],
)
def test_a_rule_in_which_dateutil_finds_nothing_ends_with_its_calendar(
    monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """Ours is made to name a date where there is none; without the twin, dateutil would walk 8,000 years."""
    ours = wall("2026-02-03T09:00")
    monkeypatch.setattr(rrule_check, "_first_times", lambda recurrence: [ours])
    begun = time.process_time()
    assert difference("20260107T090000", rule) == (ours, None)
    print(f"{rule}: {time.process_time() - begun:.2f} s of processor time")

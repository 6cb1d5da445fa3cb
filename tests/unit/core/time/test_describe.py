"""Rules and unusual dates in plain language."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from scheduler.core.models import (
    At,
    CalendarRule,
    Cron,
    DstRule,
    Every,
    ExcludedDays,
    RepeatRule,
    Rrule,
    Rule,
    Shift,
    Timing,
)
from scheduler.core.time.describe import describe_rule, notes
from scheduler.core.time.occurrences import occurrences_between


def timing(rule: Rule | str, **given: object) -> Timing:
    rule = Cron(expression=rule) if isinstance(rule, str) else rule
    return Timing(name="ingest", rule=rule, timezone="Europe/Berlin", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cron", "text"),
    [
        ("0 2 * * *", "at 02:00, every day"),
        ("0 9,17 * * 1-5", "at 09:00 and 17:00, on Monday to Friday"),
        ("* * * * *", "every minute, every day"),
        ("*/15 * * * *", "every 15 minutes, every day"),
        ("5 * * * *", "at minute 5 of every hour, every day"),
        ("*/15 9-17 * * *", "every 15 minutes of hour 9 to 17, every day"),
        ("*/7 * * * *", "at minute 0, 7, ... 56 of every hour, every day"),
        ("30 4 1,15 * 5", "at 04:30, on day 1 and 15 of the month and also on Friday"),
        ("0 16 */2 * SAT", "at 16:00, on day 1, 3, ... 31 of the month, only if it is Saturday"),
        ("0 0 L * *", "at 00:00, on the last day of the month"),
        ("0 0 * 3,6-8 5L,1#2", "at 00:00, on the second Monday of the month and on the last Friday of the month"
                              " in March and June to August"),
        ("0 0 * * 0,6", "at 00:00, on Saturday and Sunday"),
        ("0 0 1 1 *", "at 00:00, on day 1 of the month in January"),
        ("@weekly", "at 00:00, on Sunday"),
    ],
)  # fmt: skip
def test_a_cron_rule_in_words(cron: str, text: str) -> None:
    assert describe_rule(timing(cron)) == f"{text} (Europe/Berlin)"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Every(interval=timedelta(minutes=15)), "every 15 minutes, counted from 1970-01-01 00:00:00 UTC"),
        (Every(interval=timedelta(seconds=90)), "every 90 seconds, counted from 1970-01-01 00:00:00 UTC"),
        (Every(interval=timedelta(days=7)), "every week, counted from 1970-01-01 00:00:00 UTC"),
        (At(moments=(datetime(2026, 1, 1, tzinfo=UTC),)), "at 1 moment (Europe/Berlin)"),
        (
            Rrule(text="DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;COUNT=9"),
            "every 2 weeks from 2026-01-05 09:00, Monday, Friday, 9 times (Europe/Berlin)",
        ),
        (
            Rrule(text="DTSTART:20260105T090000\nRRULE:FREQ=MONTHLY;BYMONTHDAY=1,-1"),
            "every month from 2026-01-05 09:00, bymonthday -1 and 1 (Europe/Berlin)",
        ),
    ],
)
def test_other_rules_in_words(rule: Rule, text: str) -> None:
    assert describe_rule(timing(rule)) == text


@pytest.mark.parametrize(
    ("given", "after", "expected"),
    [
        (timing("30 2 * * *"), "2026-03-28T12:00", ["clocks go forward: 02:30 does not exist, fires at 03:00"]),
        (timing("30 2 * * *"), "2026-10-24T12:00", ["clocks go back: 02:30 happens twice, fires once"]),
        (
            timing("30 2 * * *", dst=DstRule(overlap=RepeatRule.LAST)),
            "2026-10-24T12:00",
            ["clocks go back: 02:30 happens twice, fires once, the last time"],
        ),
        (
            timing("30 2 * * *", dst=DstRule(overlap=RepeatRule.BOTH)),
            "2026-10-25T00:45",
            ["clocks go back: 02:30 happens twice, fires twice (second time)"],
        ),
        (
            timing("30 * * * *"),
            "2026-10-25T00:15",
            ["clocks go back: 02:30 happens twice, fires both times (first time)"],
        ),
        (timing("30 2 * * *"), "2026-06-01T12:00", []),
        (timing(Every(interval=timedelta(hours=1))), "2026-10-25T00:15", []),
    ],
)
def test_notes_tell_what_the_clock_does_to_a_date(given: Timing, after: str, expected: list[str]) -> None:
    begun = datetime.fromisoformat(after).replace(tzinfo=UTC)
    (one,) = occurrences_between(given, begun, begun + timedelta(days=1), 1)
    assert notes(given, one) == expected


def test_notes_tell_which_calendar_moves_a_date() -> None:
    closed = ExcludedDays(name="de-holidays", dates=frozenset({date(2026, 12, 25)}))
    given = timing("0 9 * * *", calendar=CalendarRule(excluded=(closed,), shift=Shift.NEXT))
    (one,) = occurrences_between(given, datetime(2026, 12, 25, tzinfo=UTC), datetime(2026, 12, 26, tzinfo=UTC))
    assert notes(given, one) == ["2026-12-25 is excluded by de-holidays: due on 2026-12-26 09:00 instead"]


def test_a_skipped_day_is_named_with_its_date() -> None:
    given = Timing(name="s", rule=Cron(expression="0 12 * * *"), timezone="Pacific/Apia")
    (one,) = occurrences_between(given, datetime(2011, 12, 30, tzinfo=UTC), datetime(2011, 12, 30, 12, tzinfo=UTC))
    assert notes(given, one) == ["clocks go forward: 2011-12-30 12:00 does not exist, fires at 00:00"]

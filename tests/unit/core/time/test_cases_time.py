"""Cases reported by people who run recurring schedules: cron syntax (CR) and zones (TZ), right values as literals.

The expressions are written as their authors wrote them; every expected instant is spelled out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.core.models import Cron, Timing
from scheduler.core.time.cron import cron_warnings, parse_cron
from scheduler.core.time.localtime import tz_version
from scheduler.core.time.occurrences import firings, never_fires, next_occurrences, previous_occurrence
from scheduler.errors import DefinitionError


def fired(cron: str, timezone: str, since: str, until: str) -> list[str]:
    """Firings in ``[since, until)`` as a person asks for them, as text."""
    tick = timedelta(microseconds=1)
    after, last = (datetime.fromisoformat(text).astimezone(UTC) - tick for text in (since, until))
    return [f"{at:%Y-%m-%dT%H:%MZ}" for at in firings(cron, timezone, after, last)]


def in_utc(cron: str, since: str, until: str) -> list[str]:
    return fired(cron, "UTC", f"{since}T00:00Z", f"{until}T00:00Z")


def days(cron: str, since: str, until: str) -> list[str]:
    return [text[5:10] for text in in_utc(cron, since, until)]


def test_cr_01_a_step_over_all_days_and_a_weekday_are_joined_by_and() -> None:
    assert in_utc("0 16 */2 * SAT", "2023-05-01", "2023-07-01") == [
        "2023-05-13T16:00Z",
        "2023-05-27T16:00Z",
        "2023-06-03T16:00Z",
        "2023-06-17T16:00Z",
    ]


def test_cr_01_the_same_days_written_as_a_range_are_joined_by_or() -> None:
    found = days("0 16 1-31/2 * SAT", "2023-05-01", "2023-05-10")
    assert found == ["05-01", "05-03", "05-05", "05-06", "05-07", "05-09"]


def test_cr_01_lint_says_how_the_day_fields_are_joined() -> None:
    assert "joined by AND" in cron_warnings(parse_cron("0 16 */2 * SAT", "odd-saturdays"))[0]


def test_cr_02_two_restricted_day_fields_are_joined_by_or() -> None:
    assert days("30 4 1,15 * 5", "2025-01-01", "2025-02-01") == [
        "01-01", "01-03", "01-10", "01-15", "01-17", "01-24", "01-31",
    ]  # fmt: skip
    assert days("0 0 13 * 5", "2026-01-01", "2026-02-01") == [
        "01-02", "01-09", "01-13", "01-16", "01-23", "01-30",
    ]  # fmt: skip


def test_cr_02_lint_says_that_it_is_an_or() -> None:
    (warning,) = cron_warnings(parse_cron("0 0 13 * 5", "friday"))
    assert "joined by OR" in warning


@pytest.mark.parametrize(
    ("cron", "since", "until", "expected"),
    [
        ("0 2-2 * * *", "2025-01-01", "2025-01-02", ["2025-01-01T02:00Z"]),
        ("0 0 5-5 * *", "2025-01-01", "2025-03-01", ["2025-01-05T00:00Z", "2025-02-05T00:00Z"]),
        ("0 0 * * 3-3", "2025-01-01", "2025-01-10", ["2025-01-01T00:00Z", "2025-01-08T00:00Z"]),
        ("0 0 1 6-6 *", "2025-01-01", "2027-01-01", ["2025-06-01T00:00Z", "2026-06-01T00:00Z"]),
    ],
)
def test_cr_03_a_range_of_one_value_is_that_value(cron: str, since: str, until: str, expected: list[str]) -> None:
    assert in_utc(cron, since, until) == expected


def test_cr_03_one_minute_written_as_a_range_fires_once_an_hour() -> None:
    assert [text[11:16] for text in in_utc("5-5 * * * *", "2025-01-01", "2025-01-02")] == [
        f"{hour:02}:05" for hour in range(24)
    ]


@pytest.mark.parametrize("cron", ["0 0 31 2 *", "0 0 31 4,6,9,11 *", "0 0 30 2 *"])
def test_cr_04_an_expression_that_never_matches_is_accepted_and_has_no_next_date(cron: str) -> None:
    timing = Timing(name="parked", rule=Cron(expression=cron), timezone="Europe/London")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert never_fires(timing)
    assert next_occurrences(timing, now, 1) == []
    assert previous_occurrence(timing, now) is None


def test_cr_04_a_weekday_beside_an_impossible_day_fires_on_the_weekday() -> None:
    assert days("0 0 31 2 mon", "2026-01-01", "2027-01-01") == ["02-02", "02-09", "02-16", "02-23"]


@pytest.mark.parametrize(
    ("cron", "count", "origin"),
    [("0 0 12 * * ?", "6 fields", "Quartz and Spring"), ("0 0 * * * 30", "6 fields", "croniter"),
     ("0 0 12 * * ? 2026", "7 fields", "Quartz")],
)  # fmt: skip
def test_cr_05_six_and_seven_fields_are_refused_with_their_likely_origin(cron: str, count: str, origin: str) -> None:
    with pytest.raises(DefinitionError) as error:
        firings(cron, "UTC", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    assert count in str(error.value)
    assert origin in str(error.value)


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 3 * * 0", ["01-05"]),
        ("0 3 * * 7", ["01-05"]),
        ("0 3 * * sun", ["01-05"]),
        ("0 3 * * 5-7", ["01-05", "01-10", "01-11"]),
        ("0 3 * * 0-7", ["01-05", "01-06", "01-07", "01-08", "01-09", "01-10", "01-11"]),
        ("15 10,12 * * 1,7", ["01-05", "01-05", "01-06", "01-06"]),
    ],
)
def test_cr_06_sunday_is_both_0_and_7(cron: str, expected: list[str]) -> None:
    assert days(cron, "2025-01-05", "2025-01-12") == expected


@pytest.mark.parametrize("timezone", ["Europe/London", "America/New_York"])
@pytest.mark.parametrize("prefix", ["CRON_TZ", "TZ"])
def test_cr_07_a_zone_in_the_expression_is_refused_and_points_at_timezone(prefix: str, timezone: str) -> None:
    with pytest.raises(DefinitionError, match='write "timezone: Europe/London" beside it'):
        fired(f"{prefix}=Europe/London 30 1 * * *", timezone, "2026-01-01T00:00Z", "2026-01-02T00:00Z")


def test_cr_08_a_step_starts_again_in_every_field() -> None:
    assert fired("*/7 * * * *", "UTC", "2025-01-01T00:45Z", "2025-01-01T01:08Z") == [
        "2025-01-01T00:49Z",
        "2025-01-01T00:56Z",
        "2025-01-01T01:00Z",
        "2025-01-01T01:07Z",
    ]
    assert fired("*/90 * * * *", "UTC", "2025-01-01T00:00Z", "2025-01-01T03:00Z") == [
        "2025-01-01T00:00Z",
        "2025-01-01T01:00Z",
        "2025-01-01T02:00Z",
    ]
    assert fired("*/55 6-20 * * *", "UTC", "2025-01-01T05:00Z", "2025-01-01T08:00Z") == [
        "2025-01-01T06:00Z",
        "2025-01-01T06:55Z",
        "2025-01-01T07:00Z",
        "2025-01-01T07:55Z",
    ]


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("*/7 * * * *", "7 does not divide 60"),
        ("*/90 * * * *", "the step is larger than the range"),
        ("*/55 6-20 * * *", "not every 55 minutes"),
        ("0 2-23/24 * * *", "it means 2 only"),
    ],
)
def test_cr_08_lint_warns_of_steps_that_do_not_divide_the_field(cron: str, said: str) -> None:
    (warning,) = cron_warnings(parse_cron(cron, "steps"))
    assert said in warning


@pytest.mark.parametrize("cron", ["0 0 12 9 * ", " 0 0 12 9 *", "0  0\t12 9 *", "0 0 12 9 *\n"])
def test_cr_10_blanks_change_nothing(cron: str) -> None:
    assert in_utc(cron, "2025-01-01", "2026-01-01") == ["2025-09-12T00:00Z"]
    assert parse_cron(cron, "x") == parse_cron("0 0 12 9 *", "x")


def test_cr_10_a_no_break_space_is_named() -> None:
    with pytest.raises(DefinitionError, match=r"U\+00A0 \(NO-BREAK SPACE\) at position 2"):
        parse_cron("0\u00a00 12 9 *", "x")


def test_tz_01_a_time_inside_the_spring_gap_fires_at_its_end() -> None:
    assert fired("30 2 * * *", "America/New_York", "2026-03-07T00:00-05:00", "2026-03-10T00:00-04:00") == [
        "2026-03-07T07:30Z",
        "2026-03-08T07:00Z",
        "2026-03-09T06:30Z",
    ]


def test_tz_02_a_time_inside_the_repeated_hour_fires_once_at_its_first_pass() -> None:
    assert fired("30 1 * * *", "America/New_York", "2026-10-31T00:00-04:00", "2026-11-03T00:00-05:00") == [
        "2026-10-31T05:30Z",
        "2026-11-01T05:30Z",
        "2026-11-02T06:30Z",
    ]


def test_tz_03_hourly_and_quarter_hourly_rules_run_through_the_repeated_hour() -> None:
    assert fired("0 * * * *", "America/Los_Angeles", "2026-11-01T07:00Z", "2026-11-01T10:01Z") == [
        "2026-11-01T07:00Z",
        "2026-11-01T08:00Z",
        "2026-11-01T09:00Z",
        "2026-11-01T10:00Z",
    ]
    assert fired("*/15 * * * *", "Europe/London", "2026-10-25T00:00Z", "2026-10-25T02:01Z") == [
        "2026-10-25T00:00Z",
        "2026-10-25T00:15Z",
        "2026-10-25T00:30Z",
        "2026-10-25T00:45Z",
        "2026-10-25T01:00Z",
        "2026-10-25T01:15Z",
        "2026-10-25T01:30Z",
        "2026-10-25T01:45Z",
        "2026-10-25T02:00Z",
    ]


@pytest.mark.parametrize(
    ("cron", "timezone", "expected"),
    [
        ("0 0 * * *", "Asia/Beirut", ["2026-03-27T22:00Z", "2026-03-28T22:00Z", "2026-03-29T21:00Z"]),
        ("0 0 * * *", "Africa/Cairo", ["2026-04-22T22:00Z", "2026-04-23T22:00Z", "2026-04-24T21:00Z"]),
        ("0 0 * * *", "America/Santiago", ["2026-09-05T04:00Z", "2026-09-06T04:00Z", "2026-09-07T03:00Z"]),
        ("30 0 * * *", "America/Santiago", ["2026-09-05T04:30Z", "2026-09-06T04:00Z", "2026-09-07T03:30Z"]),
    ],
)
def test_tz_04_a_midnight_that_does_not_exist_fires_once_after_the_gap(
    cron: str, timezone: str, expected: list[str]
) -> None:
    assert fired(cron, timezone, expected[0], expected[-1][:-1] + ":01Z") == expected


def test_tz_05_rules_cross_a_calendar_day_that_never_happened() -> None:
    def apia(cron: str) -> list[str]:
        return fired(cron, "Pacific/Apia", "2011-12-28T10:00Z", "2012-01-01T10:00Z")

    assert apia("0 0 * * *") == [
        "2011-12-28T10:00Z",
        "2011-12-29T10:00Z",
        "2011-12-30T10:00Z",
        "2011-12-31T10:00Z",
    ]
    assert apia("0 12 * * *") == [
        "2011-12-28T22:00Z",
        "2011-12-29T22:00Z",
        "2011-12-30T10:00Z",
        "2011-12-30T22:00Z",
        "2011-12-31T22:00Z",
    ]
    assert apia("0 9 * * 1-5") == ["2011-12-28T19:00Z", "2011-12-29T19:00Z", "2011-12-30T10:00Z"]
    hourly = apia("0 * * * *")
    assert hourly[0] == "2011-12-28T10:00Z"
    assert len(hourly) == 4 * 24 == len(set(hourly))
    assert {"2011-12-30T09:00Z", "2011-12-30T10:00Z", "2011-12-30T11:00Z"} <= set(hourly)


@pytest.mark.parametrize(
    ("timezone", "expected"),
    [
        ("America/Caracas", ["2016-05-01T05:30Z", "2016-05-01T06:30Z", "2016-05-01T07:00Z", "2016-05-01T08:00Z"]),
        ("Asia/Pyongyang", ["2018-05-04T13:30Z", "2018-05-04T14:30Z", "2018-05-04T15:00Z", "2018-05-04T16:00Z"]),
        ("Asia/Colombo", ["2006-04-14T17:00Z", "2006-04-14T18:00Z", "2006-04-14T18:30Z", "2006-04-14T19:30Z"]),
    ],
)
def test_tz_06_an_hourly_rule_follows_a_move_by_half_an_hour(timezone: str, expected: list[str]) -> None:
    assert fired("0 * * * *", timezone, expected[0], expected[-1][:-1] + ":01Z") == expected


def test_tz_07_second_hours_invent_nothing_in_the_gap() -> None:
    assert fired("0 */2 * * *", "America/Toronto", "2023-03-12T03:00Z", "2023-03-12T10:01Z") == [
        "2023-03-12T03:00Z",
        "2023-03-12T05:00Z",
        "2023-03-12T08:00Z",
        "2023-03-12T10:00Z",
    ]
    assert fired("30 */2 * * *", "America/New_York", "2025-03-09T05:30Z", "2025-03-09T08:31Z") == [
        "2025-03-09T05:30Z",
        "2025-03-09T08:30Z",
    ]


def test_tz_08_dates_do_not_drift_after_a_change_or_a_short_month() -> None:
    assert fired("30 2 * * *", "America/New_York", "2025-03-07T00:00-05:00", "2025-03-12T00:00-04:00") == [
        "2025-03-07T07:30Z",
        "2025-03-08T07:30Z",
        "2025-03-09T07:00Z",
        "2025-03-10T06:30Z",
        "2025-03-11T06:30Z",
    ]
    assert days("0 0 31 * *", "2025-01-01", "2025-07-01") == ["01-31", "03-31", "05-31"]


@pytest.mark.skipif(tz_version() < "2026f", reason="Vancouver stays on summer time from tzdata 2026f on")
def test_tz_09_the_package_decides_what_vancouver_shows() -> None:
    assert fired("0 9 * * *", "America/Vancouver", "2026-12-01T00:00Z", "2026-12-02T00:00Z") == ["2026-12-01T16:00Z"]

"""Durations, moments and key templates: what people write, and the sentences for what they should not."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.definitions.key_template import key_for, template_fault
from scheduler.core.models import Occurrence
from scheduler.core.storable import storable, storage_faults
from scheduler.core.time.durations import format_duration, parse_duration
from scheduler.core.time.moments import instant_text, parse_day, parse_moment


@pytest.mark.parametrize(
    ("text", "duration", "formatted"),
    [
        ("90s", timedelta(seconds=90), "1m30s"),
        ("15m", timedelta(minutes=15), "15m"),
        ("6h", timedelta(hours=6), "6h"),
        ("7d", timedelta(days=7), "7d"),
        ("2w", timedelta(days=14), "14d"),
        ("250ms", timedelta(milliseconds=250), "250ms"),
        ("1h30m", timedelta(minutes=90), "1h30m"),
        ("1d1h1m1s1ms", timedelta(days=1, hours=1, minutes=1, seconds=1, milliseconds=1), "1d1h1m1s1ms"),
        ("0s", timedelta(0), "0s"),
    ],
)
def test_durations_are_read_and_written(text: str, duration: timedelta, formatted: str) -> None:
    assert parse_duration(text) == duration
    assert format_duration(duration) == formatted


@given(milliseconds=st.integers(min_value=0, max_value=36_500 * 86_400_000))
@settings(derandomize=True, database=None)
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("90", "90 has no unit: write 90s, 90m or 90h"),
        ("5 min", '"5 min" is not a duration: write 5m'),
        ("2 hours", '"2 hours" is not a duration: write 2h'),
        ("5 milliseconds", '"5 milliseconds" is not a duration: write 5ms'),
        ("5M", '"5M" is not a duration: write 5m'),
        ("PT1H30M", '"PT1H30M" is not a duration: write 1h30m'),
        ("1:30", '"1:30" is not a duration: write a number with a unit, like 90s, 15m, 6h or 7d (at most 100 years)'),
        ("30m1h", '"30m1h" is not a duration: write a number with a unit, like 90s, 15m, 6h or 7d (at most 100 years)'),
        ("-5m", '"-5m" is not a duration: write a number with a unit, like 90s, 15m, 6h or 7d (at most 100 years)'),
        ("", '"" is not a duration: write a number with a unit, like 90s, 15m, 6h or 7d (at most 100 years)'),
        (
            "99999999999w",
            '"99999999999w" is not a duration: write a number with a unit, like 90s, 15m, 6h or 7d (at most 100 years)',
        ),
    ],
)
def test_other_durations_are_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == advice


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", date(2026, 1, 31)),
        ("2026-01-31T08:30", datetime(2026, 1, 31, 8, 30)),  # noqa: DTZ001
        ("2026-01-31 08:30:15.25", datetime(2026, 1, 31, 8, 30, 15, 250_000)),  # noqa: DTZ001
        ("2026-01-31T08:30:00Z", datetime(2026, 1, 31, 8, 30, tzinfo=UTC)),
        ("2026-01-31T08:30+05:30", datetime(2026, 1, 31, 3, 0, tzinfo=UTC)),
    ],
)
def test_moments_are_days_local_times_or_instants(text: str, moment: date) -> None:
    found = parse_moment(text)
    assert (type(found), found) == (type(moment), moment)


@pytest.mark.parametrize("text", ["", "now", "2026", "20260131", "2026-1-31", "2026-W05-6", "\u0662026-01-01", "22:30"])
@pytest.mark.parametrize("rest", ["", "T08", "T25:00", "T08:30:00+25:00"])
def test_other_moments_are_refused(text: str, rest: str) -> None:
    with pytest.raises(ValueError, match=r"write|calendar"):
        parse_moment(text + rest)
    with pytest.raises(ValueError, match=r"write|calendar"):
        parse_day(text + rest)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-13-01", "month must be in 1..12"),
        ("2026-01-31T25:00", "hour must be in 0..23"),
        ("1000-01-01", "the year must lie between 1900 and 2200"),
        ("9999-01-01T00:00Z", "the year must lie between 1900 and 2200"),
    ],
)
def test_moments_that_are_in_no_calendar_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_moment(text)
    assert str(caught.value) == f'"{text}" is not a moment of the calendar: {reason}'


def test_instants_are_written_in_utc_with_z() -> None:
    assert instant_text(datetime(2026, 3, 29, 1, tzinfo=UTC)) == "2026-03-29T01:00:00Z"


OCCURRENCE = Occurrence(
    logical_date=datetime(2026, 3, 29, 1, tzinfo=UTC),
    due_at=datetime(2026, 3, 29, 1, 5, tzinfo=UTC),
    wall=datetime(2026, 3, 29, 2, 30),  # noqa: DTZ001
    local_date=date(2026, 3, 29),
    interval_start=datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
)


def test_a_key_is_filled_in_from_the_date_and_never_from_when_it_is_due() -> None:
    template = "{schedule}:{logical_date}:{local_date}:{interval_start}"
    assert key_for(template, "a", OCCURRENCE) == "a:2026-03-29T01:00:00Z:2026-03-29:2026-03-28T01:30:00Z"


@pytest.mark.parametrize("template", ["{schedule}:{logical_date}", "{local_date}", "x {logical_date} \u00e9"])
def test_templates_with_a_date_are_fine(template: str) -> None:
    assert template_fault(template) is None


@pytest.mark.parametrize(
    "template", ["{schedule}", "", "{}", "{logical_date", "{logical_date}}", "{{logical_date}}", "{logical_date!r}"]
)
def test_templates_without_a_date_or_with_odd_braces_are_not(template: str) -> None:
    assert template_fault(template)


def test_what_jsonb_refuses_is_found_with_its_path() -> None:
    value = {"a": [1, {"b": "x\0"}], "c": float("nan"), "d": "\ud800", "e": 10**2000, "f": {1: 2}, "g": b""}
    assert [path for path, _ in storage_faults(value)] == [("a", 1, "b"), ("c",), ("d",), ("e",), ("f",), ("g",)]
    assert storage_faults({"a": "x" * 300_000})[0][0] == ()


def test_what_is_storable_is_left_as_it_is_but_for_its_numbers() -> None:
    assert storable({"a": (1, 2.5, None, True, "x")}) == {"a": [1, 2.5, None, True, "x"]}
    assert repr(storable([1e16, -0.0])) == "[10000000000000000, 0.0]"

"""Definitions as JSON and back: exact, canonical, and the same after a round through PostgreSQL's jsonb."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.definitions.codec import (
    definition_from_json,
    definition_hash,
    definition_to_json,
    duration_text,
    timing_from_json,
    timing_to_json,
)
from scheduler.core.models import (
    At,
    CalendarRule,
    Catchup,
    CatchupPolicy,
    Cron,
    Definition,
    DstRule,
    Every,
    ExcludedDays,
    FinalFailurePolicy,
    GapRule,
    OverlapPolicy,
    RepeatRule,
    RetryPolicy,
    Rrule,
    Rule,
    Shift,
    Timing,
)
from scheduler.errors import SchedulerError

PLAIN = Definition(
    name="a", owner="o", timing=Timing(name="a", rule=Cron(expression="0 2 * * *"), timezone="UTC"), job_type="x"
)

FULL = Definition(
    name="daily-ingest",
    owner="data-team",
    timing=Timing(
        name="daily-ingest",
        rule=Every(interval=timedelta(hours=6), anchor=datetime(2026, 1, 1, 0, 0, 0, 250, tzinfo=UTC)),
        timezone="Europe/Berlin",
        dst=DstRule(gap=GapRule.SKIP, overlap=RepeatRule.BOTH),
        start=datetime(2025, 12, 31, 23, tzinfo=UTC),
        end=datetime(2030, 1, 1, tzinfo=UTC),
        calendar=CalendarRule(
            excluded=(
                ExcludedDays(name="de", dates=frozenset({date(2026, 12, 25), date(2026, 12, 26)})),
                ExcludedDays(name="weekends", weekdays=frozenset({6, 5})),
            ),
            shift=Shift.PREVIOUS,
            known_until=date(2028, 12, 31),
            source="holidays 0.109",
        ),
        jitter=timedelta(minutes=5),
    ),
    job_type="run.shell",
    run={"shell": {"script": "echo", "env": {"A": {"from_env": "B"}}}},
    description="Pull",
    payload={"b": [1, 2.5, None, True, "x"], "a": {}},
    idempotency_key="{schedule}:{local_date}",
    queue="fast",
    priority=7,
    limit="api",
    timeout=timedelta(milliseconds=1500),
    retry=RetryPolicy(max_attempts=3, base=timedelta(seconds=1), max_delay=timedelta(days=1), jitter=0.0),
    catchup=Catchup(policy=CatchupPolicy.ALL, grace=timedelta(minutes=1), max_age=timedelta(days=30)),
    overlap=OverlapPolicy.CANCEL_RUNNING,
    finish_by=timedelta(hours=4),
    on_final_failure=FinalFailurePolicy.PAUSE,
    tags=("b", "a"),
)


def test_the_stored_form_is_written_out() -> None:
    assert definition_to_json(FULL) == {
        "format": 1,
        "name": "daily-ingest",
        "owner": "data-team",
        "description": "Pull",
        "timing": {
            "name": "daily-ingest",
            "rule": {"every": "PT21600S", "anchor": "2026-01-01T00:00:00.000250Z"},
            "timezone": "Europe/Berlin",
            "dst": {"gap": "skip", "overlap": "both"},
            "start": "2025-12-31T23:00:00Z",
            "end": "2030-01-01T00:00:00Z",
            "calendar": {
                "excluded": [
                    {"name": "de", "dates": ["2026-12-25", "2026-12-26"], "weekdays": []},
                    {"name": "weekends", "dates": [], "weekdays": [5, 6]},
                ],
                "shift": "previous",
                "known_until": "2028-12-31",
                "source": "holidays 0.109",
            },
            "jitter": "PT300S",
        },
        "job": "run.shell",
        "run": {"shell": {"script": "echo", "env": {"A": {"from_env": "B"}}}},
        "payload": {"b": [1, 2.5, None, True, "x"], "a": {}},
        "idempotency_key": "{schedule}:{local_date}",
        "queue": "fast",
        "priority": 7,
        "limit": "api",
        "timeout": "PT1.5S",
        "retry": {"max_attempts": 3, "base": "PT1S", "max": "PT86400S", "jitter": 0.0},
        "catchup": {"policy": "all", "grace": "PT60S", "max_age": "PT2592000S"},
        "overlap": "cancel_running",
        "finish_by": "PT14400S",
        "on_final_failure": "pause",
        "tags": ["b", "a"],
    }


@pytest.mark.parametrize("definition", [PLAIN, FULL], ids=["plain", "full"])
def test_a_definition_is_read_back_equal(definition: Definition) -> None:
    text = json.dumps(definition_to_json(definition))
    assert definition_from_json(json.loads(text)) == definition


@pytest.mark.parametrize(
    "rule",
    [
        Cron(expression="H 2 * * *"),
        Every(interval=timedelta(seconds=1)),
        Rrule(text="DTSTART:20260101T090000\nRRULE:FREQ=DAILY"),
        At(moments=(datetime(2026, 5, 1, 9), datetime(2026, 5, 1, 9, 0, 1, 5, tzinfo=UTC))),  # noqa: DTZ001
        At(moments=()),
    ],
    ids=["cron", "every", "rrule", "at", "at nothing"],
)
def test_every_kind_of_rule_is_read_back_equal(rule: Rule) -> None:
    timing = Timing(name="a", rule=rule, timezone="Asia/Tokyo")
    assert timing_from_json(json.loads(json.dumps(timing_to_json(timing)))) == timing


def test_file_and_former_name_are_no_part_of_it() -> None:
    moved = replace(PLAIN, file="other.yaml", renamed_from="old")
    assert definition_to_json(moved) == definition_to_json(PLAIN)
    assert definition_hash(moved) == definition_hash(PLAIN)
    assert definition_from_json(definition_to_json(moved)) == PLAIN


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAIN, description="x"),
        replace(PLAIN, payload={"a": 1}),
        replace(PLAIN, timing=replace(PLAIN.timing, timezone="Europe/London")),
        replace(PLAIN, timing=replace(PLAIN.timing, name="b")),
        replace(PLAIN, timeout=timedelta(microseconds=1)),
        replace(PLAIN, tags=("a",)),
    ],
)
def test_any_difference_changes_the_hash(other: Definition) -> None:
    assert definition_hash(other) != definition_hash(PLAIN)


def test_the_hash_tells_true_one_and_one_point_zero_apart_but_not_the_order_of_keys() -> None:
    hashes = {definition_hash(replace(PLAIN, payload={"a": value})) for value in (True, 1, 1.0, "1")}
    assert len(hashes) == 4
    one, other = replace(PLAIN, payload={"a": 1, "b": 2}), replace(PLAIN, payload={"b": 2, "a": 1})
    assert definition_hash(one) == definition_hash(other)


def test_the_hash_is_the_same_in_every_process() -> None:
    assert definition_hash(FULL) == HASH


HASH = "50755b4f883d0e3d12d02f240a5318ad2f8f81fc67750d556e2ae714c96db371"


def test_a_newer_holidays_package_with_the_same_days_changes_no_hash() -> None:
    assert FULL.timing.calendar is not None
    newer = replace(FULL, timing=replace(FULL.timing, calendar=replace(FULL.timing.calendar, source="holidays 0.110")))
    assert definition_hash(newer) == definition_hash(FULL)
    assert definition_to_json(newer) != definition_to_json(FULL)


def test_numbers_that_jsonb_gives_back_differently_are_stored_as_it_gives_them() -> None:
    stored = definition_to_json(replace(PLAIN, payload={"a": [1e22, -0.0, 1e-7, 5.0]}))["payload"]["a"]
    assert [repr(number) for number in stored] == ["10000000000000000000000", "0.0", "1e-07", "5.0"]


def test_a_format_of_the_future_is_refused_with_advice() -> None:
    with pytest.raises(SchedulerError, match="has format 2, and this version reads 1: upgrade sched"):
        definition_from_json(definition_to_json(PLAIN) | {"format": 2})


@given(duration=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=40_000)))
@settings(derandomize=True, database=None, deadline=None)
def test_every_duration_is_exact(duration: timedelta) -> None:
    definition = replace(PLAIN, timeout=duration)
    assert definition_from_json(definition_to_json(definition)).timeout == duration
    assert duration_text(timedelta(days=7)) == "PT604800S"

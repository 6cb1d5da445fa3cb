"""Warnings about valid definitions: what is said, about which field, and with which dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.core.definitions.lint import lint_definition, lint_set
from scheduler.core.models import (
    At,
    Catchup,
    Cron,
    Definition,
    DefinitionSet,
    DstRule,
    Every,
    GapRule,
    RepeatRule,
    Rrule,
    Rule,
    Timing,
)
from scheduler.errors import DefinitionError
from scheduler.services.definitions import lint_folder

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def warnings(rule: Rule | str, zone: str = "UTC", dst: DstRule | None = None, **fields: Any) -> list[tuple[str, str]]:
    timing_fields: dict[str, Any] = {key: fields.pop(key) for key in ("start", "end", "jitter") if key in fields}
    found = lint_definition(definition("a", rule, zone, dst or DstRule(), timing_fields, **fields), NOW)
    return [(warning.field, warning.message) for warning in found]


def definition(
    name: str, rule: Rule | str, zone: str, dst: DstRule, timing_fields: dict[str, Any], **fields: Any
) -> Definition:
    rule = Cron(expression=rule) if isinstance(rule, str) else rule
    timing = Timing(name=name, rule=rule, timezone=zone, dst=dst, **timing_fields)
    return Definition(name=name, owner="o", timing=timing, job_type="x", **fields)


@pytest.mark.parametrize("expression", ["0 2 * * *", "*/15 * * * *", "H 3 * * mon-fri", "0 0 1 */3 *"])
def test_plain_schedules_have_no_warning(expression: str) -> None:
    assert warnings(expression) == []


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 31 4,6,9,11 *"])
def test_cr_04_an_expression_that_never_matches_is_told(expression: str) -> None:
    assert warnings(expression) == [("cron", "never fires: no date matches, and every list will show it as never")]


def test_cr_04_a_weekday_beside_an_impossible_day_does_fire() -> None:
    ((field, message),) = warnings("0 0 31 2 mon")
    assert field == "cron" and "joined by OR" in message


def test_a_schedule_that_has_ended_is_told_with_its_last_date() -> None:
    past = At(moments=(datetime(2026, 1, 1, 8, tzinfo=UTC),))
    assert warnings(past) == [("at", "fires no more: its last date was 2026-01-01T08:00:00Z")]
    ended = datetime(2026, 3, 1, tzinfo=UTC)
    assert warnings("0 1 * * *", end=ended) == [("cron", "fires no more: its last date was 2026-02-28T01:00:00Z")]


@pytest.mark.parametrize(
    ("dst", "gap", "repeat"),
    [
        (DstRule(), "fires at 03:00 (dst.gap: run_after)", "fires once, the first time (dst.overlap: first)"),
        (
            DstRule(gap=GapRule.SKIP, overlap=RepeatRule.LAST),
            "does not fire (dst.gap: skip)",
            "fires once, the last time (dst.overlap: last)",
        ),
        (
            DstRule(overlap=RepeatRule.BOTH),
            "fires at 03:00 (dst.gap: run_after)",
            "fires both times (dst.overlap: both)",
        ),
    ],
)
def test_a_time_that_the_clock_skips_and_repeats_is_told_with_its_next_dates(
    dst: DstRule, gap: str, repeat: str
) -> None:
    assert warnings("30 2 * * *", "Europe/Berlin", dst) == [
        (
            "cron",
            f"the clock in Europe/Berlin skips 02:30 on 2027-03-28: it {gap}; a time outside 02:00 to 03:00 is safe",
        ),
        (
            "cron",
            f"the clock in Europe/Berlin shows 02:30 twice on 2027-10-31: it {repeat}; "
            "a time outside 02:00 to 03:00 is safe",
        ),
    ]


def test_a_change_at_midnight_is_found_too() -> None:
    assert [message for _, message in warnings("0 0 * * *", "America/Santiago")] == [
        "the clock in America/Santiago skips 00:00 on 2027-09-05: it fires at 01:00 (dst.gap: run_after); "
        "a time outside 00:00 to 01:00 is safe",
    ]


@pytest.mark.parametrize("expression", ["0 4 * * *", "*/15 * * * *", "30 * * * *", "30 2 * * mon", "30 2 1 * *"])
def test_times_outside_the_change_and_wildcard_rules_are_not_warned_about(expression: str) -> None:
    assert warnings(expression, "Europe/Berlin") == []


def test_either_of_two_day_fields_and_uneven_steps_are_told() -> None:
    ((field, either),) = warnings("0 4 1,15 * 5")
    assert field == "cron" and "are joined by OR: it fires on a day that matches either" in either
    ((field, uneven),) = warnings("*/7 * * * *")
    assert field == "cron" and "7 does not divide 60" in uneven


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0 2-2 * * *", 'it takes "2-2" for "*", so that in UTC 2026-11-30T01:00:00Z is a date there and not here'),
        ("0-0/5 * * * *", 'it takes "0-0/5" for "*/5", so that in UTC 2026-11-30T00:05:00Z is a date there'),
        ("0 16 */2 * SAT", 'it joins "*/2" and "SAT" by OR, so that in UTC 2026-12-01T16:00:00Z is a date there'),
        ("0 0 13 * fri#2", "so that in UTC 2026-12-13T00:00:00Z is a date here and not there"),
    ],
)
def test_cr_01_and_cr_03_people_who_come_from_croniter_are_told_what_it_reads_differently(
    expression: str, said: str
) -> None:
    (told,) = [message for field, message in warnings(expression, "Europe/Berlin") if "croniter" in message]
    assert told.startswith("croniter, and tools that use it, find other dates: ")
    assert said in told


@pytest.mark.parametrize(
    "expression", ["0 0 31 2 mon", "0 0 * * 5L", "0 4 1,15 * 5", "0 0 * * 0-7", "0 0 * * sat-sun", "H 2-2 * * *"]
)
def test_where_croniter_agrees_or_cannot_say_nothing_is_told(expression: str) -> None:
    assert not [message for _, message in warnings(expression) if "croniter" in message]


def test_a_recurrence_that_dateutil_reads_differently_is_told() -> None:
    weekly = "DTSTART:20260107T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,FR;BYSETPOS=1"
    assert warnings(Rrule(text=weekly)) == [
        (
            "rrule",
            "dateutil, and tools that use it, read this RRULE differently: 2026-01-09 09:00 is a date there "
            "and not here",
        )
    ]
    assert warnings(Rrule(text=weekly.replace(";BYSETPOS=1", ";COUNT=9000\nRDATE:20260203\nEXDATE:20260109"))) == []


def test_policies_that_do_not_fit_together_are_told() -> None:
    found = warnings(
        Every(interval=timedelta(minutes=5)),
        jitter=timedelta(minutes=6),
        catchup=Catchup(grace=timedelta(seconds=5)),
        timeout=timedelta(hours=2),
        finish_by=timedelta(hours=1),
        idempotency_key="{logical_date}",
    )
    assert found == [
        (
            "catchup.grace",
            "5s is shorter than a restart of the ticker takes: dates will be found late and fall under catchup: latest",
        ),
        ("timeout", "one attempt may take 2h, longer than finish_by (1h) allows for all"),
        (
            "idempotency_key",
            "has no {schedule}: another schedule with the same key on the same date will count as already done",
        ),
        ("jitter", "6m is longer than the interval (5m): dates can become due out of order"),
    ]


def crowd(count: int, rule: str, **timing_fields: Any) -> list[str]:
    schedules = {
        f"s{number}": definition(f"s{number}", rule, "UTC", DstRule(), timing_fields) for number in range(count)
    }
    found = lint_set(DefinitionSet(schedules=schedules, limits={}, owners=frozenset({"o"})), NOW)
    return [f"{warning.schedule}.{warning.field}: {warning.message}" for warning in found]


def test_many_schedules_in_one_minute_get_a_proposal_that_can_be_pasted() -> None:
    assert crowd(20, "0 3 * * *") == [
        "s0.cron: 20 schedules are due in the same minute (2026-11-30T03:00:00Z): give them jitter: 5m, "
        'or write H for the minute, like cron: "H 3 * * *", if the exact minute does not matter'
    ]


def test_few_or_spread_or_very_frequent_schedules_are_no_crowd() -> None:
    assert crowd(19, "0 3 * * *") == []
    assert crowd(20, "H 3 * * *") == []
    assert crowd(20, "0 3 * * *", jitter=timedelta(minutes=5)) == []
    assert crowd(20, "*/5 * * * *") == []


def test_the_warnings_of_a_folder_carry_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schedules").mkdir()
    Path("schedules/etl.yaml").write_text(
        "version: 1\ndefaults: {timezone: UTC, catchup: {grace: 1s}}\nschedules:\n"
        '  parked: {cron: "0 0 31 2 *", job: x}\n'
        "  often: {every: 5s, job: x, catchup: {grace: 4s}}\n"
    )
    report = lint_folder(Path("schedules"), now=NOW)
    assert report.schedules == 2
    assert [str(problem)[:60] for problem in report.warnings] == [
        "schedules/etl.yaml:4:3: parked.catchup.grace: 1s is shorter t"[:60],
        "schedules/etl.yaml:4:18: parked.cron: never fires: no date ma"[:60],
        "schedules/etl.yaml:5:47: often.catchup.grace: 4s is shorter t"[:60],
    ]
    with pytest.raises(DefinitionError):
        lint_folder(Path("nowhere"), now=NOW)

"""Definitions now against applied: which changes there are, and which dates appear, vanish or move."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler.core.definitions.diff import (
    Change,
    ChangeKind,
    FieldChange,
    changed_fields,
    diff_definitions,
    moved_dates,
)
from scheduler.core.models import (
    CalendarRule,
    Cron,
    Definition,
    Every,
    ExcludedDays,
    RetryPolicy,
    Rule,
    Timing,
)
from scheduler.errors import DefinitionError


def definition(name: str = "a", owner: str = "o", rule: Rule | None = None, **fields: Any) -> Definition:
    timing = Timing(name=name, rule=rule or Cron(expression="0 2 * * *"), timezone="Europe/Berlin")
    return Definition(name=name, owner=owner, timing=timing, job_type="x", **fields)


def named(*definitions: Definition) -> dict[str, Definition]:
    return {definition.name: definition for definition in definitions}


def summary(changes: list[Change]) -> list[tuple[str, str, str]]:
    return [(change.kind.value, change.old_name, change.name) for change in changes]


def test_the_same_definitions_are_no_change_wherever_they_stand() -> None:
    assert diff_definitions(named(definition(file="new.yaml")), named(definition(file="old.yaml"))) == []


def test_additions_changes_and_retirements_are_listed_in_order() -> None:
    wanted = named(definition("new"), definition("same"), definition("changed", queue="fast"))
    applied = named(definition("z"), definition("changed"), definition("same"), definition("gone"))
    assert summary(diff_definitions(wanted, applied)) == [
        ("added", "new", "new"),
        ("changed", "changed", "changed"),
        ("retired", "gone", "gone"),
        ("retired", "z", "z"),
    ]


def test_a_change_names_each_field_with_both_values() -> None:
    old = definition(payload={"a": 1}, retry=RetryPolicy(max_delay=timedelta(hours=1)))
    new = definition(
        rule=Every(interval=timedelta(hours=1)),
        payload={"a": True},
        retry=RetryPolicy(max_delay=timedelta(hours=2)),
        timeout=timedelta(minutes=5),
    )
    assert changed_fields(old, new) == (
        FieldChange(
            field="timing.rule",
            old={"cron": "0 2 * * *"},
            new={"every": "PT3600S", "anchor": "1970-01-01T00:00:00Z"},
        ),
        FieldChange(field="payload", old={"a": 1}, new={"a": True}),
        FieldChange(field="timeout", old=None, new="PT300S"),
        FieldChange(field="retry.max", old="PT3600S", new="PT7200S"),
    )


def test_a_calendar_that_comes_or_goes_is_a_change_of_its_fields() -> None:
    rule = CalendarRule(excluded=(ExcludedDays(name="weekends", weekdays=frozenset({5, 6})),))
    plain = definition()
    with_calendar = replace(plain, timing=replace(plain.timing, calendar=rule))
    fields = [(change.field, change.old) for change in changed_fields(plain, with_calendar)]
    assert fields == [("timing.calendar.excluded", None), ("timing.calendar.shift", None)]


def test_only_schedules_of_the_owners_being_applied_are_retired() -> None:
    applied = named(definition("mine"), definition("theirs", owner="other"))
    assert summary(diff_definitions({}, applied, owners={"o"})) == [("retired", "mine", "mine")]
    assert diff_definitions({}, applied) == []


def test_the_name_of_another_owner_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        diff_definitions(named(definition("a", file="etl.yaml")), named(definition("a", owner="other")))
    assert str(caught.value) == (
        "etl.yaml: a: is a schedule of the owner other: choose another name, or apply as that owner"
    )


def test_a_schedule_may_change_hands_when_both_owners_are_applied() -> None:
    changes = diff_definitions(named(definition("a")), named(definition("a", owner="other")), owners={"o", "other"})
    assert [change.fields for change in changes] == [(FieldChange(field="owner", old="other", new="o"),)]


def test_a_rename_keeps_the_schedule_and_shows_what_else_changes() -> None:
    wanted = named(definition("new", renamed_from="old", queue="fast"))
    (change,) = diff_definitions(wanted, named(definition("old")))
    assert summary([change]) == [("renamed", "old", "new")]
    assert change.fields == (FieldChange(field="queue", old="default", new="fast"),)
    assert change.note == "was old; its history stays with it"


def test_a_rename_that_was_carried_out_changes_nothing_any_more() -> None:
    assert diff_definitions(named(definition("new", renamed_from="old")), named(definition("new"))) == []


def test_a_rename_from_a_name_no_database_had_adds_the_schedule_and_says_so() -> None:
    (change,) = diff_definitions(named(definition("new", renamed_from="old")), {})
    assert (change.kind, change.note) == (ChangeKind.ADDED, "renamed_from: no schedule old here, so it is new")


def test_a_rename_onto_a_schedule_in_force_is_refused() -> None:
    applied = named(definition("old"), definition("new"))
    with pytest.raises(DefinitionError, match='"old" and "new" are both in force: remove renamed_from'):
        diff_definitions(named(definition("new", renamed_from="old")), applied)


def test_two_successors_of_one_name_are_refused() -> None:
    wanted = named(definition("b", renamed_from="old"), definition("c", renamed_from="old"))
    with pytest.raises(DefinitionError, match=r'^c: renamed_from: "old" was renamed to "b"'):
        diff_definitions(wanted, named(definition("old")))


def test_wanting_a_retired_name_revives_its_schedule() -> None:
    (change,) = diff_definitions(named(definition("a", queue="fast")), {}, named(definition("a")))
    assert summary([change]) == [("revived", "a", "a")]
    assert [field.field for field in change.fields] == ["queue"]


def test_a_retired_schedule_can_come_back_under_a_new_name() -> None:
    changes = diff_definitions(named(definition("new", renamed_from="old")), {}, named(definition("old")))
    assert summary(changes) == [("renamed", "old", "new")]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def timing(expression: str, zone: str = "UTC", **fields: Any) -> Timing:
    return Timing(name="a", rule=Cron(expression=expression), timezone=zone, **fields)


AFTER, UNTIL = at("2026-03-01"), at("2026-03-03T12:00")


def test_a_new_schedule_makes_dates_appear_and_a_retired_one_makes_them_vanish() -> None:
    found = moved_dates(None, timing("0 2 * * *"), AFTER, UNTIL)
    dates = (at("2026-03-01T02:00"), at("2026-03-02T02:00"), at("2026-03-03T02:00"))
    assert (found.appear, found.vanish, found.move) == (dates, (), ())
    gone = moved_dates(timing("0 2 * * *"), None, AFTER, UNTIL)
    assert (gone.appear, gone.vanish, gone.move) == ((), dates, ())


def test_another_hour_moves_the_date_of_each_day() -> None:
    found = moved_dates(timing("0 2 * * *"), timing("30 3 * * *"), AFTER, UNTIL)
    assert (found.appear, found.vanish) == ((), ())
    assert [(pair.old.logical_date, pair.new.logical_date) for pair in found.move] == [
        (at("2026-03-01T02:00"), at("2026-03-01T03:30")),
        (at("2026-03-02T02:00"), at("2026-03-02T03:30")),
        (at("2026-03-03T02:00"), at("2026-03-03T03:30")),
    ]


def test_another_zone_moves_each_date_to_the_same_time_on_the_wall() -> None:
    found = moved_dates(timing("0 */8 * * *", "UTC"), timing("0 */8 * * *", "Europe/Berlin"), AFTER, at("2026-03-02"))
    assert [(pair.old.logical_date, pair.new.logical_date) for pair in found.move] == [
        (at("2026-03-01T08:00"), at("2026-03-01T07:00")),
        (at("2026-03-01T16:00"), at("2026-03-01T15:00")),
        (at("2026-03-02T00:00"), at("2026-03-01T23:00")),
    ]
    assert (found.appear, found.vanish) == ((), ())


def test_a_calendar_takes_dates_away_and_jitter_moves_when_they_are_due() -> None:
    weekends = CalendarRule(excluded=(ExcludedDays(name="weekends", weekdays=frozenset({5, 6})),))
    found = moved_dates(
        timing("0 2 * * *"), timing("0 2 * * *", calendar=weekends, jitter=timedelta(hours=1)), AFTER, UNTIL
    )
    assert found.vanish == (at("2026-03-01T02:00"),)
    assert [pair.new.logical_date for pair in found.move] == [at("2026-03-02T02:00"), at("2026-03-03T02:00")]
    assert all(pair.new.due_at > pair.old.due_at for pair in found.move)


def test_dates_beyond_the_limit_are_not_compared_and_the_end_is_told() -> None:
    found = moved_dates(timing("* * * * *"), timing("*/2 * * * *"), AFTER, UNTIL, limit=10)
    assert found.until == at("2026-03-01T00:10")
    assert found.vanish == tuple(at(f"2026-03-01T00:0{minute}") for minute in (1, 3, 5, 7, 9))


def test_the_other_end_of_a_move_may_lie_beyond_the_range() -> None:
    later = moved_dates(timing("0 2 * * *"), timing("0 18 * * *"), AFTER, at("2026-03-02T12:00"))
    assert (later.appear, later.vanish) == ((), ())
    assert [pair.new.logical_date for pair in later.move] == [at("2026-03-01T18:00"), at("2026-03-02T18:00")]
    earlier = moved_dates(timing("0 18 * * *"), timing("0 2 * * *"), AFTER, at("2026-03-02T12:00"))
    assert (earlier.appear, earlier.vanish) == ((), ())
    assert [pair.new.logical_date for pair in earlier.move] == [at("2026-03-01T02:00"), at("2026-03-02T02:00")]


def test_another_zone_moves_the_last_date_of_the_range_out_of_it() -> None:
    found = moved_dates(timing("0 */8 * * *"), timing("0 */8 * * *", "America/New_York"), AFTER, at("2026-03-02"))
    assert found.vanish == ()
    assert found.move[-1].old.logical_date == at("2026-03-02T00:00")
    assert found.move[-1].new.logical_date == at("2026-03-02T05:00")
    assert found.until == at("2026-03-02")

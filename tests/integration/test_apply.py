"""Definitions applied to a real database: what begins, what ends, and that the past keeps its rule."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler.core.models import Cron, Definition, DefinitionSet, Every, OverlapPolicy, Timing
from scheduler.errors import ConfigError, DefinitionError
from scheduler.services.apply import apply_definitions, plan_changes
from scheduler.services.gaps import GapRequest, find_gaps
from scheduler.services.planner import Planner
from scheduler.services.tick import Ticker
from scheduler.storage.database import Connection
from tests.support.database import connect
from tests.support.wait import wait_for


def schedule(name: str = "s", cron: str = "*/5 * * * *", *, owner: str = "team", **changes: Any) -> Definition:
    timing = Timing(name=name, rule=Cron(expression=cron), **changes.pop("timing", {}))
    return Definition(name=name, owner=owner, timing=timing, job_type="test.noop", file=f"{name}.yaml", **changes)


def files(*definitions: Definition, owner: str = "team") -> DefinitionSet:
    return DefinitionSet(
        schedules={definition.name: definition for definition in definitions}, limits={}, owners=frozenset({owner})
    )


def apply(db: Connection, *definitions: Definition, **options: Any) -> list[str]:
    result = apply_definitions(db, files(*definitions), actor="tester", **options)
    return [f"{change.kind.value} {change.name}" for change in result.changes]


def planned(db: Connection) -> list[datetime]:
    return [
        row[0]
        for row in db.execute(
            "select logical_date from sched.occurrences where state = 'planned' order by 1"
        ).fetchall()
    ]


def one(db: Connection, query: str) -> Any:
    row = db.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_a_new_schedule_plans_its_next_dates_and_fires_nothing(db: Connection) -> None:
    assert apply(db, schedule()) == ["added s"]
    dates = planned(db)
    assert len(dates) == 2
    assert dates[1] - dates[0] == timedelta(minutes=5)
    assert dates[0] > one(db, "select applied_at from sched.schedules")
    assert one(db, "select count(*) from sched.jobs") == 0


def test_applying_the_same_again_changes_nothing(db: Connection) -> None:
    apply(db, schedule())
    before = db.execute("select * from sched.schedules, sched.schedule_revisions").fetchall()
    assert apply(db, schedule()) == []
    assert db.execute("select * from sched.schedules, sched.schedule_revisions").fetchall() == before


def test_a_changed_rule_replaces_planned_dates_and_keeps_the_old_revision(db: Connection) -> None:
    apply(db, schedule())
    assert apply(db, schedule(cron="0 0 1 1 *")) == ["changed s"]
    assert all((at.month, at.day, at.hour) == (1, 1, 0) for at in planned(db))
    rows = db.execute("select revision, valid_until is null from sched.schedule_revisions order by revision").fetchall()
    assert rows == [(1, False), (2, True)]
    assert (
        one(
            db,
            "select count(distinct v) from (select valid_until v from sched.schedule_revisions where revision = 1"
            " union all select valid_from from sched.schedule_revisions where revision = 2) x",
        )
        == 1
    )


def test_a_definition_that_moves_between_files_keeps_its_revision(db: Connection) -> None:
    apply(db, schedule())
    assert apply(db, replace(schedule(), file="other.yaml")) == []
    assert db.execute("select revision, file from sched.schedule_revisions").fetchall() == [(1, "other.yaml")]


def test_editing_the_rule_never_fires_the_past(db: Connection) -> None:
    apply(db, schedule(cron="0 0 1 1 *"))
    apply(db, schedule(cron="* * * * *"))
    Ticker(Planner(), "test").run_once(db)
    assert (
        one(db, "select count(*) from sched.occurrences where logical_date <= clock_timestamp() - interval '1 s'") == 0
    )


def test_dates_of_the_old_rule_before_the_change_are_planned_even_if_the_planner_was_behind(db: Connection) -> None:
    apply(db, schedule(cron="* * * * *"))
    db.execute("delete from sched.occurrences")
    db.execute(
        "update sched.schedules set applied_at = applied_at - interval '10 minutes',"
        " planned_until = applied_at - interval '10 minutes'"
    )
    db.execute("update sched.schedule_revisions set valid_from = valid_from - interval '10 minutes'")
    apply(db, schedule(cron="0 0 1 1 *"))
    Planner().run_once(db)
    assert one(db, "select count(*) from sched.occurrences where revision = 1") in (10, 11)
    assert one(db, "select count(*) from sched.occurrences where revision = 2") == 2


def test_retiring_ends_the_schedule_and_reviving_keeps_its_id(db: Connection) -> None:
    apply(db, schedule("a"), schedule("b"), schedule("c"))
    schedule_id = one(db, "select id from sched.schedules where name = 'a'")
    assert apply(db, schedule("b"), schedule("c")) == ["retired a"]
    assert one(db, f"select count(*) from sched.occurrences where schedule_id = {schedule_id}") == 0
    assert apply(db, schedule("a"), schedule("b"), schedule("c")) == ["revived a"]
    assert one(db, "select id from sched.schedules where name = 'a'") == schedule_id
    assert one(db, "select count(*) from sched.schedules") == 3


def test_a_rename_is_said_and_keeps_history_and_reserves_the_old_name(db: Connection) -> None:
    apply(db, schedule("old"), schedule("x"))
    schedule_id = one(db, "select id from sched.schedules where name = 'old'")
    assert apply(db, schedule("new", renamed_from="old"), schedule("x")) == ["renamed new"]
    assert one(db, "select id from sched.schedules where name = 'new'") == schedule_id
    with pytest.raises(DefinitionError, match='this was the name of "new" and stays reserved'):
        apply(db, schedule("new"), schedule("x"), schedule("old"))


def test_zero_schedules_are_refused_and_so_is_retiring_more_than_half(db: Connection) -> None:
    apply(db, schedule("a"), schedule("b"), schedule("c"))
    with pytest.raises(ConfigError, match="no schedule in these files"):
        apply(db)
    with pytest.raises(ConfigError, match=r"would retire 2 of the 3 schedules of team \(b, c\)"):
        apply(db, schedule("a"))
    assert apply(db, schedule("a"), allow_retire=True) == ["retired b", "retired c"]


def test_another_owners_name_is_refused_and_their_schedules_stay(db: Connection) -> None:
    apply(db, schedule("a"))
    with pytest.raises(DefinitionError, match="is a schedule of the owner team"):
        apply_definitions(db, files(schedule("a", owner="other"), owner="other"), actor="x")
    apply_definitions(db, files(schedule("b", owner="other"), owner="other"), actor="x")
    assert one(db, "select count(*) from sched.schedules where retired_at is null") == 2


def test_a_plan_says_which_fields_change_and_changes_nothing(db: Connection) -> None:
    apply(db, schedule())
    before = db.execute("select * from sched.schedules").fetchall()
    plan = plan_changes(db, files(schedule(overlap=OverlapPolicy.SKIP)))
    assert [(field.field, field.old, field.new) for change in plan.changes for field in change.fields] == [
        ("overlap", "queue", "skip")
    ]
    assert db.execute("select * from sched.schedules").fetchall() == before


def test_eight_applies_at_once_end_in_one_revision_each(database: str, db: Connection) -> None:
    wanted = files(*(schedule(f"s{n}") for n in range(20)))

    def run(_: int) -> None:
        with connect(database) as own:
            apply_definitions(own, wanted, actor="x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert one(db, "select count(*) from sched.schedule_revisions") == 20
    assert one(db, "select count(*) from sched.occurrences") == 40


def test_an_apply_waits_for_the_pass_under_way_and_loses_no_date(database: str, db: Connection) -> None:
    every_second = replace(schedule(), timing=Timing(name="s", rule=Every(interval=timedelta(seconds=1))))
    apply(db, every_second)
    with connect(database) as other, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("select sched.take_pass_lock()")
            waiting = pool.submit(apply, db, schedule())
            wait_for(
                lambda: other.execute("select 1 from pg_locks where locktype = 'advisory' and not granted").fetchone(),
                10,
                "the apply to wait for the pass",
            )
            other.execute("select * from sched.fire()")
        assert waiting.result(10) == ["changed s"]
    Ticker(Planner(), "test").run_once(db)
    changed_at = one(db, "select valid_until from sched.schedule_revisions where revision = 1")
    expected = one(
        db,
        "select floor(extract(epoch from valid_until)) - floor(extract(epoch from valid_from))"
        " from sched.schedule_revisions where revision = 1",
    )
    assert one(db, f"select count(*) from sched.occurrences where logical_date <= '{changed_at}'") == expected


def test_moving_start_back_opens_gaps_and_fires_nothing(db: Connection) -> None:
    apply(db, schedule(cron="0 0 * * *"))
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    apply(db, schedule(cron="0 0 * * *", timing={"start": today - timedelta(days=10)}))
    Ticker(Planner(), "test").run_once(db)
    assert one(db, "select count(*) from sched.jobs") == 0
    report = find_gaps(db, GapRequest(since=today - timedelta(days=60)))
    assert [gap.kind.value for gap in report.gaps] == ["missing"] * len(report.gaps)
    assert len(report.gaps) in (10, 11)

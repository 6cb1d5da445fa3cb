"""One beat of the host pg_cron: passes in transactions of their own, the horizon, and changing hosts. Any server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from scheduler.core.models import Catchup, CatchupPolicy, Cron, Definition, DefinitionSet, Timing
from scheduler.interfaces.cli.pgcron import keep_planned
from scheduler.services.apply import apply_definitions
from scheduler.services.pgcron import release, take_over
from scheduler.services.planner import Planner, PlanResult
from scheduler.services.tick import Ticker
from scheduler.storage.database import Connection, Database
from tests.support.build import MINUTE, Policy, add_schedule, plan_date, plan_dates
from tests.support.database import connect
from tests.support.invariants import violations
from tests.support.wait import wait_for

FAR = timedelta(days=1)


def this_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


def value(db: Connection, query: str) -> object:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def apply(db: Connection, name: str, *, cron: str = "* * * * *", catchup: Catchup | None = None) -> None:
    timing = Timing(name=name, rule=Cron(expression=cron))
    definition = Definition(name=name, owner="team", timing=timing, job_type="test.noop", catchup=catchup or Catchup())
    apply_definitions(
        db, DefinitionSet(schedules={name: definition}, limits={}, owners=frozenset({"team"})), actor="test"
    )


def plan_all(db: Connection) -> int:
    planner, dates = Planner(), 0
    while (planned := planner.run_once(db)).schedules:
        dates += planned.dates
    return dates


def test_a_backlog_takes_several_passes_each_in_its_own_transaction(db: Connection) -> None:
    now = this_minute()
    for index in range(6):
        policy = Policy(catchup="all", overlap="allow", max_age=timedelta(days=30))
        schedule = add_schedule(db, f"s{index}", policy, applied_at=now - timedelta(days=20), planned_until=now + FAR)
        plan_dates(db, schedule, now - 1999 * MINUTE, 2000)
    db.execute("call sched.beat()")
    assert value(db, "select count(*) from sched.jobs") == 12_000
    assert value(db, "select count(distinct xmin::text) from sched.jobs") == 3
    assert value(db, "select count(*) from sched.occurrences where state = 'planned'") == 0


def test_a_beat_that_has_spent_its_budget_leaves_the_rest_to_the_next(db: Connection) -> None:
    now = this_minute()
    policy = Policy(catchup="all", overlap="allow", max_age=timedelta(days=30))
    schedule = add_schedule(db, "s", policy, applied_at=now - timedelta(days=20), planned_until=now + FAR)
    plan_dates(db, schedule, now - 5999 * MINUTE, 6000)
    db.execute("call sched.beat(p_budget => '0 s')")
    assert value(db, "select count(*) from sched.jobs") == 5000
    db.execute("call sched.beat()")
    assert value(db, "select count(*) from sched.jobs") == 6000


def test_a_beat_among_other_statements_fails_instead_of_deciding_all_in_one_transaction(db: Connection) -> None:
    schedule = add_schedule(db, "s", planned_until=this_minute() + FAR)
    plan_date(db, schedule, this_minute())
    with pytest.raises(psycopg.errors.InvalidTransactionTermination):
        db.execute("call sched.beat(); select 1")
    assert value(db, "select count(*) from sched.jobs") == 0
    assert value(db, "select host from sched.state") == "tick"


def test_a_beat_beside_another_pass_decides_nothing_and_ends(database: str, db: Connection) -> None:
    schedule = add_schedule(db, "s", planned_until=this_minute() + FAR)
    plan_date(db, schedule, this_minute())
    with connect(database, autocommit=False) as other:
        other.execute("select sched.take_pass_lock()")
        db.execute("call sched.beat()")
        other.rollback()
    assert value(db, "select count(*) from sched.jobs") == 0


def test_the_first_beat_records_the_host_and_signs_its_decisions(db: Connection) -> None:
    schedule = add_schedule(db, "s", planned_until=this_minute() + FAR)
    plan_date(db, schedule, this_minute())
    db.execute("call sched.beat()")
    assert value(db, "select host from sched.state") == "pg_cron"
    assert value(db, "select decided_by from sched.occurrences") == "pg_cron"
    db.execute("call sched.beat()")
    assert value(db, "select count(*) from sched.events where kind = 'host_changed'") == 1


def end_horizon(db: Connection, at: datetime) -> None:
    """As if schedule s had been applied a day before ``at``, and nobody had planned beyond it."""
    db.execute("delete from sched.occurrences")
    db.execute("update sched.schedule_revisions set valid_from = %s - interval '1 day'", (at,))
    db.execute(
        "update sched.schedules set applied_at = %s - interval '1 day', planned_until = %s, plan_at = %s", (at, at, at)
    )


def test_an_ended_horizon_is_recorded_once_until_it_is_extended(db: Connection) -> None:
    apply(db, "s")
    ended = "select count(*) from sched.events where kind = 'horizon_ended' and schedule_id = 1"
    end_horizon(db, this_minute() - 10 * MINUTE)
    db.execute("call sched.beat()")
    db.execute("call sched.beat()")
    assert value(db, ended) == 1
    assert value(db, "select is_ended from sched.horizon") is True

    plan_all(db)
    db.execute("call sched.beat()")
    assert value(db, ended) == 1
    assert value(db, "select is_ended from sched.horizon") is False

    end_horizon(db, this_minute() - 5 * MINUTE)
    db.execute("call sched.beat()")
    assert value(db, ended) == 2


def test_a_schedule_without_further_dates_has_no_horizon_that_could_end(db: Connection) -> None:
    apply(db, "parked", cron="0 0 31 2 *")
    db.execute("call sched.beat()")
    assert value(db, "select count(*) from sched.events where kind = 'horizon_ended'") == 0
    assert value(db, "select count(*) from sched.horizon") == 0


@pytest.mark.parametrize(
    ("policy", "fate_of_late"),
    [("all", ("enqueued", None)), ("latest", ("missed", "coalesced")), ("none", ("missed", "late"))],
)
def test_after_the_horizon_ended_and_was_extended_catch_up_decides_as_after_any_outage(
    db: Connection, policy: str, fate_of_late: tuple[str, str | None]
) -> None:
    apply(db, "s", catchup=Catchup(policy=CatchupPolicy(policy), grace=3 * MINUTE))
    end_horizon(db, this_minute() - 10 * MINUTE)
    db.execute("call sched.beat()")
    assert value(db, "select count(*) from sched.occurrences") == 0

    plan_all(db)
    db.execute("call sched.beat()")
    fates = db.execute(
        "select decided_at - due_at > interval '3 minutes', state, reason, count(*) from sched.occurrences"
        " where state <> 'planned' group by 1, 2, 3 order by 1"
    ).fetchall()
    (in_time, late) = fates
    assert in_time[:3] == (False, "enqueued", None)
    assert late[:3] == (True, *fate_of_late)
    assert in_time[3] + late[3] >= 10


def test_what_a_worker_does_beside_its_work_extends_the_horizon(database: str, db: Connection) -> None:
    apply(db, "s")
    take_over(db, "test")
    end_horizon(db, this_minute() - 10 * MINUTE)
    stop = threading.Event()
    beside = threading.Thread(target=keep_planned, args=(Database(database), stop))
    beside.start()
    try:
        wait_for(lambda: value(db, "select remaining > interval '1 day' from sched.horizon"), 30, "the new horizon")
    finally:
        stop.set()
        beside.join()


def test_taking_over_has_every_planner_plan_to_the_new_horizon_at_once(db: Connection) -> None:
    apply(db, "daily", cron="0 0 * * *")
    plan_all(db)
    assert value(db, "select count(*) from sched.occurrences") == 2
    assert take_over(db, "test") is True
    assert take_over(db, "test") is False
    plan_all(db)
    assert 399 <= int(str(value(db, "select count(*) from sched.occurrences"))) <= 401


def test_dates_planned_for_pg_cron_fire_once_under_the_ticker_too(db: Connection) -> None:
    apply(db, "s")
    take_over(db, "test")
    plan_all(db)
    planned = value(db, "select count(*) from sched.occurrences")
    assert release(db, "test") is True
    assert plan_all(db) == 0
    assert value(db, "select count(*) from sched.occurrences") == planned


def test_both_hosts_at_once_decide_every_date_once(database: str, db: Connection) -> None:
    now = this_minute()
    for index in range(10):
        overlap = "allow" if index % 2 else "queue"
        policy = Policy(catchup="all", overlap=overlap, max_age=timedelta(days=30))
        schedule = add_schedule(db, f"s{index}", policy, applied_at=now - timedelta(days=20), planned_until=now + FAR)
        plan_dates(db, schedule, now - 899 * MINUTE, 900)
    begin = threading.Barrier(4)

    def beats(count: int) -> None:
        with connect(database) as own:
            begin.wait()
            for _ in range(count):
                own.execute("call sched.beat()")

    def ticks(count: int) -> None:
        ticker = Ticker(_UnplannedRows(), by="tick")
        with connect(database) as own:
            begin.wait()
            for _ in range(count):
                ticker.run_once(own)

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, 10) for work in (beats, beats, ticks, ticks)]
        for future in done:
            future.result()
    assert value(db, "select count(*) from sched.occurrences where state = 'enqueued'") == 9000
    assert value(db, "select count(distinct (schedule_id, logical_date)) from sched.jobs") == 9000
    assert violations(db) == {}


class _UnplannedRows(Planner):
    """The rows of these tests are plain inserts, without definitions that could be planned."""

    def run_once(self, connection: Connection, now: datetime | None = None) -> PlanResult:
        return PlanResult()

"""Retention, and the watchdog: old rows go in batches, and no decision changes by it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.core.models import Cron, Definition, DefinitionSet, Timing
from scheduler.services.apply import apply_definitions
from scheduler.services.backfill import BackfillRequest, fill_gaps
from scheduler.services.gaps import GapReport, GapRequest, find_gaps
from scheduler.services.retention import Retention, prune_once
from scheduler.storage.database import Connection
from tests.support.build import MINUTE, NOON, Policy, add_schedule, fire, ledger, plan_date, plan_dates
from tests.support.database import connect

DAY = timedelta(days=1)


def one(db: Connection, query: str) -> object:
    row = db.execute(query).fetchone()
    assert row is not None
    return row[0]


def finish(db: Connection, ago: timedelta) -> None:
    db.execute(
        "update sched.jobs set status = 'succeeded', completed_at = clock_timestamp() - %s, waiting_for = null,"
        " holds_overlap = false",
        (ago,),
    )


def test_old_final_jobs_go_with_their_attempts_and_the_ledger_stays(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(overlap="allow", catchup="all"))
    plan_dates(db, schedule, NOON - 3 * MINUTE, 4)
    fire(db, NOON)
    finish(db, 31 * DAY)
    db.execute(
        "insert into sched.attempts (job_id, number, worker, lease_token, started_at, ended_at, outcome)"
        " select id, 1, gen_random_uuid(), gen_random_uuid(), created_at, created_at, 'succeeded' from sched.jobs"
    )
    result = prune_once(db, Retention(ledger=timedelta(days=100_000)))
    assert result.rows == {"succeeded jobs": 4}
    assert (one(db, "select count(*) from sched.jobs"), one(db, "select count(*) from sched.attempts")) == (0, 0)
    assert [row[1] for row in ledger(db, schedule)] == ["enqueued"] * 4


def test_unfinished_and_fresh_jobs_stay(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(overlap="allow"))
    plan_date(db, schedule, NOON)
    fire(db, NOON)
    assert prune_once(db, Retention(ledger=timedelta(days=100_000))).rows == {}


def test_the_ledger_moves_forward_and_leaves_daily_counts(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(overlap="allow", catchup="all"))
    plan_dates(db, schedule, NOON - DAY, 5, timedelta(hours=12))
    fire(db, NOON + 2 * DAY)
    finish(db, timedelta(0))
    prune_once(db, Retention(ledger=DAY), now=NOON + DAY + MINUTE)
    assert [row[0] for row in ledger(db, schedule)] == [NOON + timedelta(hours=12), NOON + DAY]
    assert one(db, "select ledger_from from sched.schedules") == NOON
    assert db.execute("select day::text, state, dates from sched.daily_counts order by day").fetchall() == [
        ("2026-03-01", "enqueued", 1),
        ("2026-03-02", "enqueued", 2),
    ]


def test_the_ledger_is_not_pruned_past_an_undecided_date_or_an_unfinished_job(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(overlap="allow", catchup="all"))
    plan_dates(db, schedule, NOON - 3 * MINUTE, 3)
    fire(db, NOON)
    finish(db, timedelta(0))
    db.execute(
        "update sched.jobs set status = 'pending', completed_at = null where logical_date = %s", (NOON - MINUTE,)
    )
    prune_once(db, Retention(ledger=timedelta(0)), now=NOON + MINUTE)
    assert [row[0] for row in ledger(db, schedule)] == [NOON - MINUTE]


@pytest.fixture
def daily(db: Connection) -> datetime:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    timing = Timing(name="daily", rule=Cron(expression="0 0 * * *"), start=today - 60 * DAY)
    definition = Definition(name="daily", owner="team", timing=timing, job_type="x")
    apply_definitions(
        db, DefinitionSet(schedules={"daily": definition}, limits={}, owners=frozenset({"team"})), actor="t"
    )
    return today - 60 * DAY


def gaps(db: Connection, since: datetime) -> GapReport:
    return find_gaps(db, GapRequest(since=since))


def test_pruned_dates_are_no_gaps_and_cannot_be_filled(db: Connection, daily: datetime) -> None:
    before = gaps(db, daily)
    fill_gaps(db, before.gaps, 0, BackfillRequest(actor="t", since="x", is_overlap_allowed=True))
    finish(db, timedelta(0))
    prune_once(db, Retention(ledger=30 * DAY))
    after = gaps(db, daily)
    assert (after.gaps, after.settled) == ([], len(before.gaps) - 31)
    assert list(after.ledger_from) == ["daily"]
    again = fill_gaps(db, before.gaps, 0, BackfillRequest(actor="t", since="x"))
    assert len(again.inserted) == 0


def test_pruning_beside_a_backfill_loses_and_doubles_no_date(database: str, db: Connection, daily: datetime) -> None:
    report = gaps(db, daily)

    def prune(_: int) -> None:
        with connect(database) as own:
            for _ in range(10):
                finish(own, 31 * DAY)
                prune_once(own, Retention(ledger=30 * DAY))

    def fill(_: int) -> int:
        with connect(database) as own:
            return len(fill_gaps(own, report.gaps, 0, BackfillRequest(actor="t", since="x")).inserted)

    with ThreadPoolExecutor(4) as pool:
        pruning = [pool.submit(prune, n) for n in range(2)]
        filled = [pool.submit(fill, n) for n in range(2)]
        inserted = sum(running.result(60) for running in filled)
        for running in pruning:
            running.result(60)
    assert inserted == len(report.gaps)
    assert gaps(db, daily).gaps == []


def test_a_date_not_done_by_its_finish_by_is_overdue_and_noted_once(db: Connection) -> None:
    schedule = add_schedule(db)
    db.execute("update sched.schedule_revisions set finish_by = '1 minute'")
    plan_date(db, schedule, NOON)
    assert db.execute("select schedule, logical_date, state, job_id from sched.overdue").fetchall() == [
        ("s", NOON, "planned", None)
    ]
    for _ in range(3):
        db.execute("update sched.state set last_watch_at = null")
        db.execute("select sched.watch()")
    assert db.execute("select kind, reason from sched.events").fetchall() == [
        ("overdue", "not done by 2026-03-02T12:01:00Z: no job yet")
    ]
    fire(db, NOON)
    assert db.execute("select state, job_status from sched.overdue").fetchall() == [("enqueued", "pending")]
    finish(db, timedelta(0))
    assert db.execute("select * from sched.overdue").fetchall() == []


def test_health_says_how_far_a_schedule_is_planned_and_what_is_undecided(db: Connection) -> None:
    schedule = add_schedule(db, planned_until=NOON)
    plan_date(db, schedule, NOON)
    row = db.execute(
        "select schedule, oldest_due_undecided, horizon_end, is_horizon_ended, is_paused, host from sched.health"
    ).fetchone()
    assert row == ("s", NOON, NOON, True, False, "tick")

"""A pass under an old snapshot: where planned dates begin is taken note of, and no date gets out of sight by it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import psycopg
import pytest

from scheduler.storage.database import Connection
from tests.support.build import MINUTE, NOON, Policy, add_schedule, fire, ledger, plan_date, plan_dates
from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.invariants import violations

SECOND = timedelta(seconds=1)
PLAN = """
    select sched.plan('t', %(now)s, 'test', array[s.id], array[1], array[s.planned_until], array[s.planned_until],
      array['9999-01-01'::timestamptz], array[s.id], array[1], array[%(date)s::timestamptz],
      array[%(date)s::timestamptz], array[null::timestamp], array[false], array[%(date)s::date],
      array[%(date)s::timestamptz - interval '1 minute'])
    from sched.schedules s
"""
SLOW = """
    create or replace function sched.first_planned(p_from timestamptz, p_until timestamptz) returns timestamptz
    language plpgsql volatile as $$
    begin
      perform pg_sleep(0.011);
      return (select min(o.due_at) from sched.occurrences o
              where o.state = 'planned' and o.due_at >= p_from and o.due_at <= p_until);
    end
    $$
"""
OLD_DATE = {"now": NOON, "date": NOON - 10 * MINUTE}


@pytest.fixture
def schedule(db: Connection) -> int:
    """A schedule whose passes have taken note that nothing is due before NOON."""
    found = add_schedule(db, policy=Policy(catchup="all"))
    db.execute("update sched.state set tzdata = 't', nothing_due_before = %s", (NOON,))
    db.execute("update sched.schedules set tzdata = 't'")
    return found


@pytest.fixture
def slow(db: Connection) -> Iterator[None]:
    """Every look takes as long as one over many dead index entries."""
    db.execute(SLOW)
    yield
    assert violations(db) == {}


def noted(db: Connection) -> datetime | None:
    row = db.execute("select nothing_due_before from sched.state").fetchone()
    assert row is not None
    found: datetime | None = row[0]
    return found


def test_planning_an_older_date_lowers_what_was_noted(db: Connection, schedule: int) -> None:
    assert db.execute(PLAN, OLD_DATE).fetchone() == (schedule,)
    assert noted(db) == NOON - 10 * MINUTE
    assert fire(db, NOON)[:2] == ("fired", 1)
    assert violations(db) == {}


def test_dates_due_since_are_found(db: Connection, schedule: int) -> None:
    values = {"now": NOON, "date": NOON + MINUTE}
    assert db.execute(PLAN, values).fetchone() == (schedule,)
    assert noted(db) == NOON
    assert fire(db, NOON + MINUTE)[:2] == ("fired", 1)


def test_a_slow_look_is_taken_note_of(db: Connection, slow: None) -> None:
    add_schedule(db)
    assert fire(db, NOON)[0] == "idle"
    assert noted(db) == NOON
    assert fire(db, NOON + MINUTE)[0] == "idle"
    assert noted(db) == NOON + MINUTE


def test_a_clock_that_ran_ahead_puts_no_date_out_of_sight(db: Connection, slow: None) -> None:
    """What is noted bounds all planned dates, those to come too, so that it holds at any moment."""
    schedule = add_schedule(db)
    plan_date(db, schedule, NOON + 2 * MINUTE)
    fire(db, NOON + MINUTE)
    assert noted(db) == NOON + MINUTE
    assert fire(db, NOON + 2 * MINUTE)[:2] == ("fired", 1)


def test_dates_that_are_planned_again_after_a_wrong_clock_are_in_sight(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="none"))
    plan_date(db, schedule, NOON)
    fire(db, NOON + MINUTE * 60)
    db.execute("update sched.occurrences set decided_at = now() + interval '1 day'")
    db.execute("update sched.state set nothing_due_before = %s", (NOON + MINUTE * 60,))
    db.execute("select * from sched.repair_clock('test')")
    assert [row[1] for row in ledger(db, schedule)] == ["planned"]
    assert noted(db) is None


def test_nothing_is_noted_while_a_planner_has_not_committed(db: Connection, other: Connection, slow: None) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="all"))
    db.execute("update sched.state set tzdata = 't', last_plan_at = %s", (NOON,))
    db.execute("update sched.schedules set tzdata = 't'")
    with other.transaction():
        assert other.execute(PLAN, OLD_DATE).fetchone() == (schedule,)
        assert fire(db, NOON)[0] == "idle"
        assert noted(db) is None
    assert fire(db, NOON)[:2] == ("fired", 1)


def test_a_planner_waits_for_the_pass_that_takes_note_and_lowers_it(
    db: Connection, other: Connection, slow: None
) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="all"))
    db.execute("update sched.state set tzdata = 't'")
    db.execute("update sched.schedules set tzdata = 't'")
    with connect(other.info.dsn) as observer:
        with db.transaction():
            assert fire(db, NOON)[0] == "idle"
            planning = Waiting(other, PLAN, OLD_DATE).until_blocked(observer)
        assert planning.rows() == [(schedule,)]
    assert noted(db) == NOON - 10 * MINUTE
    assert fire(db, NOON)[:2] == ("fired", 1)


def test_a_date_behind_the_back_of_the_planner_is_told_by_the_doctor(db: Connection, schedule: int) -> None:
    db.execute(
        "insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date)"
        " values (%(id)s, 1, %(at)s, %(at)s, %(at)s, %(at)s::date)",
        {"id": schedule, "at": NOON - 10 * MINUTE},
    )
    assert fire(db, NOON)[0] == "idle"
    assert violations(db) == {"no planned date is due before the moment at which passes begin to look": 1}


def test_a_look_over_dead_entries_is_taken_note_of_and_undecided_dates_stay_in_sight(database: str) -> None:
    """A foreign snapshot keeps the index entries of many fired dates; one date of a keeping pause is still planned."""
    with connect(database) as db, connect(database, autocommit=False) as foreign:
        kept = add_schedule(db, "kept", Policy(catchup="all"))
        db.execute(
            "insert into sched.pauses (schedule_id, from_at, keep, actor) values (%s, %s, true, 'test')",
            (kept, NOON - timedelta(days=2)),
        )
        plan_date(db, kept, NOON - 3 * MINUTE)
        schedule = add_schedule(db, "many", Policy(catchup="none"))
        plan_dates(db, schedule, NOON - 80_000 * SECOND, 79_000, SECOND)
        foreign.execute("set transaction isolation level repeatable read")
        foreign.execute("select from sched.occurrences limit 1")
        db.execute(
            "update sched.occurrences set state = 'missed', reason = 'late', decided_at = %s where schedule_id = %s",
            (NOON, schedule),
        )
        assert fire(db, NOON)[0] == "idle"
        # On a fast machine the look may take less than what is taken note of.
        assert noted(db) in [NOON - 3 * MINUTE, None]
        db.execute("update sched.pauses set until_at = %s", (NOON - SECOND,))
        assert fire(db, NOON + SECOND)[:2] == ("fired", 1)
        assert [row[1] for row in ledger(db, kept)] == ["enqueued"]
        assert violations(db) == {}


def test_a_date_planned_during_a_slow_look_stays_in_sight(db: Connection, one: Connection, other: Connection) -> None:
    """The look begins where the note said; a planner lowers the note and commits before the look takes note anew."""
    schedule = add_schedule(db, policy=Policy(catchup="all"))
    db.execute("update sched.state set tzdata = 't', nothing_due_before = %s", (NOON,))
    db.execute("update sched.schedules set tzdata = 't'")
    db.execute(SLOW.replace("perform pg_sleep(0.011)", "perform pg_advisory_xact_lock(1), pg_sleep(0.011)"))
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(1)")
        firing = Waiting(one, "select outcome from sched.fire(%s)", (NOON + MINUTE,)).until_blocked(other)
        assert other.execute(PLAN, OLD_DATE).fetchone() == (schedule,)
    firing.rows()
    assert violations(db) == {}
    fire(db, NOON + 2 * MINUTE)
    assert [row[1] for row in ledger(db, schedule)] == ["enqueued"]


def test_a_planner_that_reads_an_old_snapshot_is_refused(db: Connection, other: Connection, slow: None) -> None:
    """It would not see what a pass noted while it waited, and so would not lower it."""
    add_schedule(db, policy=Policy(catchup="all"))
    db.execute("update sched.state set tzdata = 't', last_plan_at = %s", (NOON,))
    db.execute("update sched.schedules set tzdata = 't'")
    other.execute("set default_transaction_isolation = 'repeatable read'")
    with other.transaction():
        other.execute("select 1 from sched.state")
        assert fire(db, NOON)[0] == "idle"
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="needs isolation level read committed"):
            other.execute(PLAN, OLD_DATE)

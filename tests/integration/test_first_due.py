"""A pass under an old snapshot: where planned dates begin is remembered for a minute, and nothing is lost by it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduler.storage.database import Connection
from tests.support.build import MINUTE, NOON, Policy, add_schedule, fire, ledger, plan_date, plan_dates
from tests.support.database import connect

SECOND = timedelta(seconds=1)
PLAN = """
    select sched.plan('t', %(now)s, 'test', array[%(id)s], array[1], array[%(until)s::timestamptz],
      array[%(until)s::timestamptz], array['9999-01-01'::timestamptz], array[%(id)s], array[1],
      array[%(date)s::timestamptz], array[%(date)s::timestamptz], array[null::timestamp], array[false],
      array[%(date)s::date], array[%(date)s::timestamptz - interval '1 minute'])
"""


@pytest.fixture
def schedule(db: Connection) -> int:
    """A schedule whose passes remember that nothing was due two minutes before NOON."""
    found = add_schedule(db, policy=Policy(catchup="all"))
    db.execute("update sched.state set looked_at = %s, nothing_due_before = %s", (NOON, NOON - 2 * MINUTE))
    return found


def insert_by_hand(db: Connection, schedule: int) -> None:
    """An older date that appears behind the back of sched.plan."""
    db.execute(
        "insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date)"
        " values (%(id)s, 1, %(at)s, %(at)s, %(at)s, %(at)s::date)",
        {"id": schedule, "at": NOON - 10 * MINUTE},
    )


def test_what_appears_before_the_remembered_moment_is_found_a_minute_later(db: Connection, schedule: int) -> None:
    insert_by_hand(db, schedule)
    assert fire(db, NOON + 30 * SECOND)[0] == "idle"
    assert fire(db, NOON + 60 * SECOND)[:2] == ("fired", 1)


def test_a_clock_that_was_set_back_looks_again(db: Connection, schedule: int) -> None:
    insert_by_hand(db, schedule)
    assert fire(db, NOON - SECOND)[:2] == ("fired", 1)


def test_planning_an_older_date_forgets_what_was_remembered(db: Connection, schedule: int) -> None:
    db.execute("update sched.state set tzdata = 't'")
    db.execute("update sched.schedules set tzdata = 't'")
    row = db.execute("select planned_until from sched.schedules").fetchone()
    assert row is not None
    values = {"now": NOON, "id": schedule, "until": row[0], "date": NOON - 10 * MINUTE}
    assert db.execute(PLAN, values).fetchone() == (schedule,)
    assert fire(db, NOON + 30 * SECOND)[:2] == ("fired", 1)


def test_dates_due_since_are_found_at_once(db: Connection, schedule: int) -> None:
    db.execute(
        "insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date)"
        " values (%(id)s, 1, %(at)s, %(at)s, %(at)s, %(at)s::date)",
        {"id": schedule, "at": NOON - MINUTE},
    )
    assert fire(db, NOON)[:2] == ("fired", 1)


def test_a_slow_walk_is_remembered_and_undecided_dates_stay_in_sight(database: str) -> None:
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
        remembered = db.execute("select looked_at, nothing_due_before from sched.state").fetchone()
        db.execute("update sched.pauses set until_at = %s", (NOON - SECOND,))
        assert fire(db, NOON + SECOND)[:2] == ("fired", 1)
        # On a fast machine the walk may take less than what is remembered.
        assert remembered in [(NOON, NOON - 3 * MINUTE), (None, None)]
        assert [row[1] for row in ledger(db, kept)] == ["enqueued"]

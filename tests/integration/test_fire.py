"""What ``sched.fire`` does beside its policies, which are in ``test_fire_table``: rows in, rows out."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from scheduler.storage.database import Connection
from tests.support.build import (
    MINUTE,
    NOON,
    Policy,
    add_schedule,
    claim_all,
    complete,
    fire,
    jobs,
    ledger,
    plan_date,
    plan_dates,
)
from tests.support.database import connect

LATE = timedelta(minutes=10)


def fire_all(db: Connection, now: datetime, limit: int) -> None:
    while fire(db, now, limit)[4]:
        pass


def test_a_date_that_is_due_becomes_a_job_and_says_so(db: Connection) -> None:
    schedule = add_schedule(db, "daily", Policy(payload={"n": 1}))
    plan_date(db, schedule, NOON)
    assert fire(db, NOON)[:4] == ("fired", 1, 0, 0)
    assert ledger(db, schedule) == [(NOON, "enqueued", None)]
    (job,) = jobs(db, "job_type", "payload", "status", "idempotency_key", "logical_date", "interval_start", "origin")
    assert job == ("test.noop", {"n": 1}, "pending", "daily:2026-03-02T12:00:00Z", NOON, NOON - MINUTE, "schedule")


def test_a_date_in_the_future_is_left_alone_and_announced(db: Connection) -> None:
    schedule = add_schedule(db)
    plan_date(db, schedule, NOON)
    outcome = fire(db, NOON - MINUTE)
    assert outcome[0] == "idle"
    assert outcome[5] == NOON
    assert ledger(db, schedule) == [(NOON, "planned", None)]


def test_a_late_date_of_latest_waits_until_the_schedule_is_planned_up_to_now(db: Connection) -> None:
    schedule = add_schedule(db, planned_until=NOON - LATE)
    plan_date(db, schedule, NOON - LATE)
    assert fire(db, NOON)[0] == "idle"
    plan_date(db, schedule, NOON)
    db.execute("update sched.schedules set planned_until = %s", (NOON + MINUTE,))
    fire(db, NOON)
    assert [row[1:] for row in ledger(db, schedule)] == [("missed", "coalesced"), ("enqueued", None)]


@pytest.mark.parametrize("limit", [5000, 1])
def test_the_job_that_stands_for_coalesced_dates_covers_their_intervals(db: Connection, limit: int) -> None:
    schedule = add_schedule(db)
    plan_dates(db, schedule, NOON - timedelta(minutes=30), 4)
    fire_all(db, NOON, limit)
    assert jobs(db, "logical_date", "covers_from") == [
        (NOON - timedelta(minutes=27), NOON - timedelta(minutes=31)),
    ]


def test_a_date_that_stands_for_itself_covers_nothing_more(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(overlap="allow"))
    plan_dates(db, schedule, NOON - MINUTE, 2)
    fire(db, NOON)
    assert jobs(db, "covers_from") == [(None,), (None,)]


def test_a_keeping_pause_leaves_dates_undecided_until_resume(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="none"))
    plan_date(db, schedule, NOON)
    db.execute(
        "insert into sched.pauses (schedule_id, from_at, keep, actor) values (%s, %s, true, 'test')",
        (schedule, NOON - MINUTE),
    )
    assert fire(db, NOON + LATE)[0] == "idle"
    db.execute("update sched.pauses set until_at = %s", (NOON + LATE,))
    fire(db, NOON + LATE)
    assert ledger(db, schedule) == [(NOON, "missed", "late")]


def test_a_key_that_belongs_to_another_job_is_a_miss_and_others_fire(db: Connection) -> None:
    taken = add_schedule(db, "taken", Policy(key_template="same"))
    free = add_schedule(db, "free")
    db.execute("select sched.enqueue('x', p_idempotency_key => 'same')")
    plan_date(db, taken, NOON)
    plan_date(db, free, NOON)
    assert fire(db, NOON)[:4] == ("fired", 1, 0, 1)
    assert ledger(db, taken) == [(NOON, "missed", "key_taken")]
    assert ledger(db, free) == [(NOON, "enqueued", None)]


@pytest.mark.parametrize("limit", [5000, 1])
def test_of_dates_that_share_a_key_the_first_fires_and_the_others_are_told(db: Connection, limit: int) -> None:
    shared = add_schedule(db, "shared", Policy(catchup="all", overlap="allow", key_template="{schedule}:{local_date}"))
    alone = add_schedule(db, "alone")
    plan_dates(db, shared, NOON, 3)
    plan_date(db, shared, NOON + timedelta(days=1))
    plan_date(db, alone, NOON + timedelta(days=1))
    fire_all(db, NOON + timedelta(days=1), limit)
    assert [row[1:] for row in ledger(db, shared)] == [
        ("enqueued", None),
        ("missed", "key_taken"),
        ("missed", "key_taken"),
        ("enqueued", None),
    ]
    assert [row[1:] for row in ledger(db, alone)] == [("enqueued", None)]
    assert db.execute("select kind from sched.events").fetchall() == []


def test_one_poisoned_schedule_of_a_hundred_is_recorded_and_the_others_fire(db: Connection) -> None:
    ids = [add_schedule(db, f"s{n}", Policy(job_type="poison" if n == 37 else "fine")) for n in range(100)]
    for schedule in ids:
        plan_date(db, schedule, NOON)
    db.execute("alter table sched.jobs add constraint no_poison check (job_type <> 'poison')")
    assert fire(db, NOON)[:4] == ("fired", 99, 0, 1)
    assert ledger(db, ids[37]) == [(NOON, "missed", "error")]
    (event,) = db.execute("select reason, details ->> 'sqlstate' from sched.events where kind = 'fire_failed'")
    assert "no_poison" in event[0]
    assert event[1] == "23514"


def test_at_most_a_thousand_dates_of_a_schedule_wait(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="all"))
    plan_dates(db, schedule, NOON - 1010 * MINUTE, 1011)
    assert fire(db, NOON)[1:3] == (1001, 10)
    # the one that is not late is decided before the backlog, so the ten are the newest late ones
    states = [row[1:] for row in ledger(db, schedule)]
    assert states[:998] == [("enqueued", None)] * 998
    assert states.count(("skipped", "overlap_full")) == 10


def test_fresh_dates_are_decided_before_a_backlog_larger_than_a_pass(db: Connection) -> None:
    backlog = add_schedule(db, "backlog", Policy(catchup="all", overlap="allow"))
    fresh = add_schedule(db, "fresh")
    plan_dates(db, backlog, NOON - timedelta(hours=10), 300)
    plan_date(db, fresh, NOON)
    assert fire(db, NOON, limit=100)[:2] == ("fired", 100)
    assert ledger(db, fresh) == [(NOON, "enqueued", None)]


def test_a_finished_job_frees_the_slot_for_the_next_date(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="all"))
    plan_dates(db, schedule, NOON - LATE, 3)
    fire(db, NOON)
    for expected in ("pending", "waiting"), ("pending",), ():
        ((job_id, token),) = claim_all(db)
        assert complete(db, job_id, token) == "settled"
        assert tuple(row[0] for row in jobs(db, "status") if row[0] != "succeeded") == expected


def test_firing_twice_changes_nothing(db: Connection) -> None:
    schedule = add_schedule(db)
    plan_date(db, schedule, NOON)
    fire(db, NOON)
    before = db.execute("select * from sched.occurrences").fetchall(), db.execute("select * from sched.jobs").fetchall()
    assert fire(db, NOON + MINUTE)[0] == "idle"
    assert (
        db.execute("select * from sched.occurrences").fetchall(),
        db.execute("select * from sched.jobs").fetchall(),
    ) == before


@pytest.mark.parametrize("limit", [5000, 1])
def test_dates_of_two_revisions_with_other_overlap_policies_are_decided_together(db: Connection, limit: int) -> None:
    schedule = add_schedule(db, policy=Policy(overlap="allow", catchup="all"))
    plan_date(db, schedule, NOON - 2 * MINUTE)
    db.execute(
        "insert into sched.schedule_revisions select (r).* from (select jsonb_populate_record(r,"
        ' \'{"revision": 2, "overlap": "queue"}\') as r from sched.schedule_revisions r) x'
    )
    for minute in (1, 0):
        at = plan_date(db, schedule, NOON - minute * MINUTE)
        db.execute("update sched.occurrences set revision = 2 where logical_date = %s", (at,))
    fire_all(db, NOON, limit)
    assert [row[1] for row in ledger(db, schedule)] == ["enqueued"] * 3
    assert jobs(db, "revision", "status") == [(1, "pending"), (2, "pending"), (2, "waiting")]


def pages_read(db: Connection, now: datetime, limit: int) -> int:
    """Pages that a pass looks at, from memory or disk."""
    (explained,) = db.execute(
        "explain (analyze, buffers, format json) select * from sched.fire(%s, %s, 'test')", (now, limit)
    ).fetchone() or ([],)
    plan = explained[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("overlap", ["queue", "allow", "skip", "queue_one", "cancel_running"])
def test_a_session_that_began_with_empty_tables_reads_no_more_than_a_fresh_one(
    database: str, db: Connection, overlap: str
) -> None:
    """Passes keep their plan: it must not be one that fits small tables only. Nothing is analysed here."""
    schedule = add_schedule(db, policy=Policy(catchup="all", overlap=overlap))
    plan_date(db, schedule, NOON - 300 * MINUTE)
    fire(db, NOON - 300 * MINUTE)
    db.execute(
        "update sched.jobs set status = 'succeeded', completed_at = now(), waiting_for = null, holds_overlap = false"
    )
    plan_dates(db, schedule, NOON + 1440 * MINUTE, 20_000)
    db.execute(
        """
        insert into sched.jobs (job_type, status, completed_at, schedule_id, schedule, logical_date, idempotency_key)
        select 'x', 'succeeded', now(), %(id)s, 's', d, 'old:' || d
        from generate_series(%(at)s::timestamptz - interval '20 days', %(at)s - interval '6 days', '1 minute') d
        """,
        {"id": schedule, "at": NOON},
    )
    plan_dates(db, schedule, NOON - 200 * MINUTE, 100)
    in_old_session = pages_read(db, NOON, 50)
    with connect(database) as fresh:
        in_fresh_session = pages_read(fresh, NOON, 50)
    assert in_old_session < 1.5 * in_fresh_session
    assert in_old_session < 50 * 200

"""Many jobs at once: redriving what is dead and replaying what has ended, in batches that keep slots exact."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler.core.jobs.actions import ACTIONS, JobSelection
from scheduler.core.models import JobStatus
from scheduler.errors import NotFound
from scheduler.services.operate import BATCH, act_on_jobs, act_on_matching, count_matching
from scheduler.storage import operating
from scheduler.storage.database import Connection
from scheduler.storage.operating import By
from tests.support.build import MINUTE, NOON, Policy, add_schedule, fire, plan_dates
from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.invariants import violations
from tests.support.leases import COMPLETE, add, claim, complete, set_limit, statuses

BY = By(actor="anna", reason="test")
DEAD = (JobStatus.DEAD,)
ACT = "select id, outcome from sched.steer(%s, %s, 'anna')"
EVENTS = "select kind, actor, reason, details from sched.events where job_id = %s order by id"


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection
        assert violations(connection) == {}


def kill(db: Connection, ids: list[int], error: str = "it broke", died_at: datetime | None = None) -> None:
    """Jobs that died, as if they never had an attempt."""
    db.execute(
        """
        update sched.jobs
        set status = 'dead', completed_at = coalesce(%s, clock_timestamp()), last_error = %s, waiting_for = null,
            holds_overlap = false, holds_limit = false
        where id = any (%s)
        """,
        (died_at, error, ids),
    )


def add_dead(db: Connection, count: int, limit_key: str | None = None, queue: str = "default") -> None:
    db.execute(
        """
        insert into sched.jobs (job_type, status, queue, completed_at, last_error, limit_key)
        select 'x', 'dead', %s, clock_timestamp(), 'it broke', %s from generate_series(1, %s)
        """,
        (queue, limit_key, count),
    )


def redrive(db: Connection, action: str = "retry", **filters: Any) -> Counter[str]:
    selection = JobSelection(**{"statuses": ACTIONS[action].usual, **filters})
    return act_on_matching(db, action, selection, BY, lambda done: None)


def test_sql_and_code_name_the_same_states_for_each_action(db: Connection) -> None:
    for name, action in ACTIONS.items():
        told = {
            status: db.execute("select sched.action_outcome(%s, %s)", (name, status.value)).fetchone()[0]  # type: ignore[index]
            for status in JobStatus
        }
        assert {status for status, outcome in told.items() if outcome} == set(action.works_on), name
        assert set(told.values()) - {None} == action.done, name
        assert set(action.usual) <= set(action.works_on)


def test_jobs_of_one_call_are_judged_each_for_itself_and_admitted_once(db: Connection) -> None:
    set_limit(db, "two", 2)
    ids = add(db, 4, "two")
    kill(db, ids[:3])
    assert statuses(db) == ["dead", "dead", "dead", "waiting"]
    rows = db.execute(ACT, ("retry", [ids[2], ids[0], ids[3], 10**6])).fetchall()
    assert rows == [(ids[2], "retried"), (ids[0], "retried"), (ids[3], "waiting"), (10**6, "not_found")]
    assert statuses(db) == ["pending", "dead", "pending", "waiting"]


def test_the_filter_means_every_part_of_it(db: Connection) -> None:
    died_at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    schedule = add_schedule(db, "daily", Policy(catchup="all"))
    plan_dates(db, schedule, NOON, 1)
    fire(db, NOON)
    (of_schedule,) = [row[0] for row in db.execute("select id from sched.jobs")]
    plain, mail, early, held = (*add(db, 2), *add(db, 1), *add(db, 1))
    db.execute("update sched.jobs set queue = 'mail', job_type = 'mail.send' where id = %s", (mail,))
    kill(db, [of_schedule, plain, mail], "connection timeout: 100% of it", died_at)
    kill(db, [early], "no such_file", died_at - timedelta(days=1))
    act_on_jobs(db, "hold", [held], BY)

    def meant(statuses: tuple[JobStatus, ...] = DEAD, **filters: Any) -> list[int]:
        selection = JobSelection(statuses=statuses, **filters)
        schedule_id = schedule if filters.get("schedule") else None
        return [job.id for job in operating.matching_jobs(db, selection, schedule_id, after=0, limit=100)]

    assert meant() == [of_schedule, plain, mail, early]
    assert meant((*DEAD, JobStatus.HELD)) == [of_schedule, plain, mail, early, held]
    assert meant(queue="mail") == meant(job_type="mail.send") == [mail]
    assert meant(schedule="daily") == [of_schedule]
    assert meant(since=died_at) == [of_schedule, plain, mail]
    assert meant(until=died_at) == [early]
    assert meant(error="100% of") == [of_schedule, plain, mail]
    assert meant(error="such%file") == []
    assert count_matching(db, JobSelection(statuses=DEAD, limit=3)) == {("dead", "x"): 1, ("dead", "test.noop"): 1} | {
        ("dead", "mail.send"): 1
    }


def test_a_redrive_takes_the_oldest_up_to_its_limit_and_says_who_and_why(db: Connection) -> None:
    ids = add(db, 5)
    kill(db, ids)
    assert redrive(db, limit=2) == {"retried": 2}
    assert statuses(db) == ["pending", "pending", "dead", "dead", "dead"]
    assert db.execute(EVENTS, (ids[1],)).fetchall() == [("job_retried", "anna", "test", {"was": "dead"})]
    assert redrive(db) == {"retried": 3}
    assert redrive(db) == {}


def test_a_filter_of_an_unknown_schedule_is_refused_with_a_guess(db: Connection) -> None:
    add_schedule(db, "daily")
    with pytest.raises(NotFound, match='there is no schedule "dayly"; did you mean "daily"'):
        redrive(db, schedule="dayly")


def test_a_job_that_changes_before_its_batch_comes_is_judged_as_it_is_then(db: Connection, other: Connection) -> None:
    add_dead(db, BATCH + 1)
    (last,) = db.execute("select max(id) from sched.jobs").fetchone() or (0,)

    def meanwhile(done: int) -> None:
        if done == BATCH:
            other.execute("select sched.retry(%s, 'ben')", (last,))

    selection = JobSelection(statuses=DEAD)
    assert act_on_matching(db, "retry", selection, BY, meanwhile) == {"retried": BATCH}
    assert db.execute(EVENTS, (last,)).fetchall() == [("job_retried", "ben", None, {"was": "dead"})]


def test_redriving_ten_thousand_behind_a_limit_keeps_its_slots_while_others_work(
    db: Connection, other: Connection
) -> None:
    set_limit(db, "three", 3)
    add_dead(db, 10_000, "three")
    is_over = threading.Event()
    finished = 0

    def work() -> None:
        nonlocal finished
        while not is_over.is_set() or finished < 30:
            ids, tokens = claim(other)
            assert len(ids) <= 3
            holders = other.execute("select count(*) from sched.jobs where limit_key = 'three' and holds_limit")
            assert (holders.fetchone() or (0,))[0] <= 3
            finished += complete(other, ids, tokens).count("settled")

    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=guarded)
    worker.start()
    steps: list[int] = []
    outcomes = act_on_matching(db, "retry", JobSelection(statuses=DEAD), BY, steps.append)
    is_over.set()
    worker.join(60)
    assert (errors, worker.is_alive()) == ([], False)
    assert outcomes == {"retried": 10_000}
    assert steps == list(range(BATCH, 10_001, BATCH))
    counts = dict(db.execute("select status, count(*) from sched.jobs group by status").fetchall())
    assert counts == {"succeeded": finished, "pending": 3, "waiting": 10_000 - 3 - finished}


def test_a_redrive_beside_a_settlement_waits_for_it_and_gets_the_slot(db: Connection, other: Connection) -> None:
    set_limit(db, "one", 1)
    dead, running = add(db, 2, "one")
    kill(db, [dead])
    db.execute("select sched.admit(array['one'])")
    ids, tokens = claim(db)
    assert ids == [running]
    with db.transaction():
        assert complete(db, ids, tokens) == ["settled"]
        redriven = Waiting(other, ACT, ("retry", [dead])).until_blocked(db)
    assert redriven.rows() == [(dead, "retried")]
    assert statuses(db) == ["pending", "succeeded"]


def test_a_settlement_beside_a_redrive_waits_for_it_and_gives_its_slot_on(db: Connection, other: Connection) -> None:
    set_limit(db, "one", 1)
    dead, _ = add(db, 2, "one")
    kill(db, [dead])
    db.execute("select sched.admit(array['one'])")
    ids, tokens = claim(db)
    with db.transaction():
        assert db.execute(ACT, ("retry", [dead])).fetchall() == [(dead, "retried")]
        settled = Waiting(other, COMPLETE, (ids, tokens, None)).until_blocked(db)
        assert statuses(db) == ["waiting", "running"]
    assert settled.rows() == [("settled",)]
    assert statuses(db) == ["pending", "succeeded"]


def test_two_redrives_of_the_same_jobs_retry_each_once(db: Connection, other: Connection) -> None:
    ids = add(db, 3)
    kill(db, ids)
    with db.transaction():
        db.execute(ACT, ("retry", ids[:2]))
        second = Waiting(other, ACT, ("retry", ids[::-1])).until_blocked(db)
    assert second.rows() == [(ids[2], "retried"), (ids[1], "pending"), (ids[0], "pending")]
    assert db.execute("select count(*) from sched.events where kind = 'job_retried'").fetchone() == (3,)


def replayed(db: Connection, job_id: int) -> dict[str, Any]:
    """The row of the job that a replay of this one makes."""
    (replayed,) = act_on_jobs(db, "replay", [job_id], BY)
    assert replayed.outcome == "replayed"
    row = db.execute("select to_jsonb(j) from sched.jobs j where id = %s", (replayed.replay_id,)).fetchone()
    assert row is not None
    return dict(row[0])


def test_a_replay_is_a_new_job_and_leaves_the_old_one_as_it_is(db: Connection) -> None:
    set_limit(db, "two", 2)
    (old,) = add(db, 1, "two", queue="mail", priority=7, idempotency_key="report:1", max_attempts=3)
    db.execute("update sched.jobs set payload = '{\"a\": 1}', queue = 'default'")
    ids, tokens = claim(db)
    complete(db, ids, tokens, ["first"])
    before = db.execute("select j::text from sched.jobs j where id = %s", (old,)).fetchone()

    new = replayed(db, old)

    assert db.execute("select j::text from sched.jobs j where id = %s", (old,)).fetchone() == before
    copied = {name: new[name] for name in ("job_type", "payload", "queue", "priority", "limit_key", "max_attempts")}
    assert copied == {
        "job_type": "x", "payload": {"a": 1}, "queue": "default", "priority": 7, "limit_key": "two", "max_attempts": 3,
    }  # fmt: skip
    assert (new["status"], new["origin"], new["replay_of"], new["attempt_count"]) == ("pending", "manual", old, 0)
    assert new["idempotency_key"] == f"report:1#replay-{new['id']}"
    assert db.execute(EVENTS, (old,)).fetchall() == [
        ("job_replayed", "anna", "test", {"was": "succeeded", "replay": new["id"]})
    ]


def test_the_results_of_a_job_and_of_its_replays_are_all_kept(db: Connection) -> None:
    (job_id,) = add(db, 1, idempotency_key="k")
    for result in ("first", "second", "third"):
        ids, tokens = claim(db)
        complete(db, ids, tokens, [result])
        job_id = replayed(db, job_id)["id"]
    kept = db.execute("select result, regexp_replace(key, '[0-9]+$', 'N') from sched.job_results order by produced_by")
    assert kept.fetchall() == [("first", "k"), ("second", "k#replay-N"), ("third", "k#replay-N")]


def test_a_job_without_a_key_is_replayed_without_one(db: Connection) -> None:
    (job_id,) = add(db)
    kill(db, [job_id])
    assert replayed(db, job_id)["idempotency_key"] is None


def test_a_replay_of_a_date_has_its_data_interval_and_no_date_and_waits_for_its_schedule(db: Connection) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="all"))
    plan_dates(db, schedule, NOON - MINUTE, 2)
    fire(db, NOON)
    ids, tokens = claim(db)
    complete(db, ids, tokens)
    before = db.execute("select o::text from sched.occurrences o order by logical_date").fetchall()

    new = replayed(db, ids[0])

    assert (new["schedule"], new["logical_date"], new["status"]) == ("s", None, "waiting")
    assert datetime.fromisoformat(new["interval_end"]) == NOON - MINUTE
    assert db.execute("select o::text from sched.occurrences o order by logical_date").fetchall() == before
    ids, tokens = claim(db)
    assert len(ids) == 1
    complete(db, ids, tokens)
    assert statuses(db) == ["succeeded", "succeeded", "pending"]


def test_what_has_not_ended_is_not_replayed(db: Connection) -> None:
    waits, runs = add(db, 2)
    act_on_jobs(db, "hold", [waits], BY)
    claim(db)
    results = act_on_jobs(db, "replay", [waits, runs], BY)
    assert [(each.outcome, each.replay_id) for each in results] == [("held", None), ("running", None)]
    assert statuses(db) == ["held", "running"]


def test_replaying_a_thousand_behind_a_limit_admits_exactly_its_slots(db: Connection) -> None:
    set_limit(db, "three", 3)
    add_dead(db, 1_000, "three")
    assert redrive(db, "replay") == {"replayed": 1_000}
    counts = dict(db.execute("select status, count(*) from sched.jobs group by status").fetchall())
    assert counts == {"dead": 1_000, "pending": 3, "waiting": 997}
    assert db.execute("select count(distinct replay_of) from sched.jobs").fetchone() == (1_000,)

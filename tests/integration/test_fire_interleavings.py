"""Races of firing, spelled with two connections; each waits for the other by looking at it, not by sleeping."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from scheduler.storage.database import Connection
from tests.support.build import MINUTE, NOON, Policy, add_schedule, claim_all, fire, jobs, ledger, plan_date, plan_dates
from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.wait import wait_for


@pytest.fixture
def pair(database: str) -> Iterator[tuple[Connection, Connection]]:
    with connect(database) as one, connect(database) as other:
        yield one, other


def is_blocked(watcher: Connection, blocked: Connection) -> bool:
    row = watcher.execute(
        "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", (blocked.info.backend_pid,)
    ).fetchone()
    return row is not None and bool(row[0])


def is_blocked_by(watcher: Connection, blocked: Connection, holder: Connection) -> bool:
    row = watcher.execute(
        "select %s = any (pg_blocking_pids(%s))", (holder.info.backend_pid, blocked.info.backend_pid)
    ).fetchone()
    return row is not None and bool(row[0])


def test_a_second_pass_at_once_is_told_busy_and_decides_nothing(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    schedule = add_schedule(one, policy=Policy(overlap="skip"))
    plan_date(one, schedule, NOON - MINUTE)
    plan_date(one, schedule, NOON)
    with one.transaction():
        assert fire(one, NOON)[1:3] == (1, 1)
        assert fire(other, NOON)[0] == "busy"
    assert fire(other, NOON)[0] == "idle"
    assert [row[1] for row in ledger(one, schedule)] == ["enqueued", "skipped"]


def test_a_pass_refuses_an_isolation_level_that_would_read_an_old_snapshot(
    pair: tuple[Connection, Connection],
) -> None:
    one, _ = pair
    one.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="read committed"), one.transaction():
        fire(one, NOON)


def test_a_date_due_while_its_predecessor_completes_is_admitted(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    one, other = pair
    schedule = add_schedule(one)
    plan_date(one, schedule, NOON - MINUTE)
    fire(one, NOON - MINUTE)
    plan_date(one, schedule, NOON)
    ((job_id, token),) = claim_all(one)
    with connect(database) as watcher, ThreadPoolExecutor(1) as pool:
        with one.transaction():
            one.execute(
                "select * from sched.complete(array[%s]::bigint[], array[%s]::uuid[], array['null'::jsonb])",
                (job_id, token),
            )
            pass_ = pool.submit(fire, other, NOON)
            wait_for(lambda: is_blocked(watcher, other), 10, "the pass to wait for the completing job's slot")
        assert pass_.result(10)[:2] == ("fired", 1)
    assert jobs(one, "status", "holds_overlap") == [("succeeded", False), ("pending", True)]


def test_a_completion_while_a_pass_is_open_admits_the_job_the_pass_made(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    one, other = pair
    schedule = add_schedule(one)
    plan_date(one, schedule, NOON - MINUTE)
    fire(one, NOON - MINUTE)
    plan_date(one, schedule, NOON)
    ((job_id, token),) = claim_all(one)
    with connect(database) as watcher, ThreadPoolExecutor(1) as pool:
        with one.transaction():
            fire(one, NOON)
            assert jobs(one, "status") == [("running",), ("waiting",)]
            done = pool.submit(
                other.execute,
                "select outcome from sched.complete(array[%s]::bigint[], array[%s]::uuid[], array['null'::jsonb])",
                (job_id, token),
            )
            wait_for(lambda: is_blocked(watcher, other), 10, "the completion to wait for the pass")
        assert done.result(10).fetchall() == [("settled",)]
    assert jobs(one, "status", "holds_overlap") == [("succeeded", False), ("pending", True)]


def test_skip_judges_a_predecessor_that_completes_meanwhile_by_its_end(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    one, other = pair
    schedule = add_schedule(one, policy=Policy(overlap="skip"))
    plan_date(one, schedule, NOON - MINUTE)
    fire(one, NOON - MINUTE)
    plan_date(one, schedule, NOON)
    ((job_id, token),) = claim_all(one)
    with connect(database) as watcher, ThreadPoolExecutor(1) as pool:
        with one.transaction():
            one.execute(
                "select * from sched.complete(array[%s]::bigint[], array[%s]::uuid[], array['null'::jsonb])",
                (job_id, token),
            )
            pass_ = pool.submit(fire, other, NOON)
            wait_for(lambda: is_blocked(watcher, other), 10, "the pass to wait for the completing job's slot")
        assert pass_.result(10)[:3] == ("fired", 1, 0)
    assert [row[1] for row in ledger(one, schedule)] == ["enqueued", "enqueued"]


def test_keys_taken_one_after_another_while_a_pass_waits_for_them_cost_no_other_date(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    one, other = pair
    schedule = add_schedule(one, policy=Policy(catchup="all", overlap="allow", key_template="{logical_date}"))
    plan_dates(one, schedule, NOON - 2 * MINUTE, 3)
    with connect(database, autocommit=False) as first, connect(database, autocommit=False) as second:
        takers = {NOON - 2 * MINUTE: first, NOON - MINUTE: second}
        for date, taker in takers.items():
            taker.execute("select sched.enqueue('x', p_idempotency_key => sched.rfc3339(%s))", (date,))
        with ThreadPoolExecutor(1) as pool:
            passing = pool.submit(fire, other, NOON)
            for taker in takers.values():
                wait_for(lambda taker=taker: is_blocked_by(one, other, taker), 20, "the pass to wait for a key")
                taker.commit()
            assert passing.result(20)[:4] == ("fired", 1, 0, 2)
    assert [row[1:] for row in ledger(one, schedule)] == [
        ("missed", "key_taken"),
        ("missed", "key_taken"),
        ("enqueued", None),
    ]


def test_eight_passes_at_once_decide_each_date_once(database: str) -> None:
    with connect(database) as db:
        ids = [add_schedule(db, f"s{n}", Policy(catchup="all", overlap="skip")) for n in range(50)]
        for schedule in ids:
            plan_dates(db, schedule, NOON - 10 * MINUTE, 5)

        start = threading.Barrier(8)

        def run() -> None:
            with connect(database) as own:
                start.wait()
                wait_for(lambda: fire(own, NOON, 20)[0] == "idle", 60, "nothing more due")

        with ThreadPoolExecutor(8) as pool:
            for running in [pool.submit(run) for _ in range(8)]:
                running.result(90)
        assert {tuple(row[1] for row in ledger(db, schedule)) for schedule in ids} == {
            ("enqueued", "skipped", "skipped", "skipped", "skipped")
        }
        assert len(jobs(db, "id")) == 50


WRONG_LOCK = """
create or replace function sched.lock_keys(p_keys text[]) returns void language plpgsql volatile as $$
begin
end
$$
"""
WRONG_ADMIT = """
create or replace function sched.admit(p_keys text[]) returns integer language sql volatile as $$ select 0 $$
"""
WRONG_PASS_LOCK = """
create or replace function sched.try_pass_lock() returns boolean language sql volatile as $$ select true $$
"""


def test_without_the_key_lock_skip_judges_a_predecessor_by_what_it_no_longer_is(
    pair: tuple[Connection, Connection],
) -> None:
    """The wrong design, to prove that the test above can fail: deciding overlap without the key's lock."""
    one, other = pair
    one.execute(WRONG_LOCK)
    schedule = add_schedule(one, policy=Policy(overlap="skip"))
    plan_date(one, schedule, NOON - MINUTE)
    fire(one, NOON - MINUTE)
    plan_date(one, schedule, NOON)
    ((job_id, token),) = claim_all(one)
    with one.transaction():
        one.execute(
            "select * from sched.complete(array[%s]::bigint[], array[%s]::uuid[], array['null'::jsonb])",
            (job_id, token),
        )
        fire(other, NOON)
    assert [row[1] for row in ledger(one, schedule)] == ["enqueued", "skipped"]


def test_without_the_pass_lock_two_passes_under_skip_both_enqueue(pair: tuple[Connection, Connection]) -> None:
    """The wrong design: two passes each read what is unfinished before the other has decided."""
    one, other = pair
    one.execute(WRONG_LOCK)
    one.execute(WRONG_PASS_LOCK)
    one.execute(WRONG_ADMIT)
    schedule = add_schedule(one, policy=Policy(overlap="skip"))
    plan_date(one, schedule, NOON - MINUTE)
    with one.transaction():
        fire(one, NOON - MINUTE)
        plan_date(other, schedule, NOON)
        other.execute(
            "select sched.decide(array(select d::sched.due_date from unnest(sched.due_batch(%(at)s, 10)) as d"
            " where d.logical_date = %(at)s), %(at)s, 'x')",
            {"at": NOON},
        )
    assert [row[1] for row in ledger(one, schedule)] == ["enqueued", "enqueued"]


def enqueue(connection: Connection, key: str) -> None:
    """As an application does, under the limit that the schedule has too."""
    connection.execute("select sched.enqueue('x', '{}', p_idempotency_key => %s, p_limit_key => 'api')", (key,))


def fire_while_an_application_enqueues(database: str, application: Connection, firing: Connection) -> None:
    """The application has the limit that the pass needs, then asks for the key that the pass has in mind."""
    with connect(database) as observer:
        with application.transaction():
            enqueue(application, "another")
            waiting = Waiting(firing, "select outcome, missed from sched.fire(%s)", (NOON,)).until_blocked(observer)
            enqueue(application, f"{NOON:%Y-%m-%d}")
        assert waiting.rows() == [("fired", 1)]


def test_a_pass_takes_limits_before_it_makes_jobs_so_that_it_cannot_deadlock_with_who_enqueues(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    one, other = pair
    one.execute("insert into sched.limits (key, slots) values ('api', 1)")
    schedule = add_schedule(one, policy=Policy(overlap="allow", limit_key="api", key_template="{local_date}"))
    plan_date(one, schedule, NOON)
    fire_while_an_application_enqueues(database, one, other)
    assert ledger(one, schedule) == [(NOON, "missed", "key_taken")]


def test_a_pass_takes_the_limits_of_what_it_cancels_before_it_makes_jobs(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    one, other = pair
    one.execute("insert into sched.limits (key, slots) values ('api', 1)")
    schedule = add_schedule(one, policy=Policy(overlap="cancel_running", limit_key="api", key_template="{local_date}"))
    plan_date(one, schedule, NOON - 1440 * MINUTE)
    fire(one, NOON - 1440 * MINUTE)
    one.execute("update sched.schedule_revisions set limit_key = null")
    plan_date(one, schedule, NOON)
    fire_while_an_application_enqueues(database, one, other)


def test_a_pass_repeated_schedule_by_schedule_has_all_limits_before_it_makes_jobs(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    """Who settles a job of the second schedule has its slot and needs the limit that the pass has for the first."""
    one, other = pair
    one.execute("insert into sched.limits (key, slots) values ('api', 1)")
    first = add_schedule(one, "first", Policy(limit_key="api"))
    second = add_schedule(one, "second", Policy(limit_key="api"))
    for schedule in (first, second):
        plan_date(one, schedule, NOON)
    # The look at both fails; the one at the first schedule alone waits until it is let on.
    one.execute(
        """
        create function sched.stop() returns trigger language plpgsql as $$
        begin
          if nextval('sched.looks') = 1 then
            raise exception 'no';
          end if;
          perform pg_advisory_xact_lock_shared(1);
          return null;
        end $$;
        create sequence sched.looks;
        create trigger stop after insert on sched.jobs for each row execute function sched.stop();
        """
    )
    with connect(database) as settling, connect(database) as observer:
        with one.transaction():
            one.execute("select pg_advisory_xact_lock(1)")
            firing = Waiting(other, "select outcome, enqueued from sched.fire(%s)", (NOON,)).until_blocked(observer)
            taken = Waiting(settling, "select sched.lock_keys(array[sched.overlap_key(%s), 'api'])", (second,))
            taken.until_blocked(observer)
        assert firing.rows() == [("fired", 2)]
        assert taken.rows() == [("",)]


def test_a_pass_takes_the_slot_of_a_backfill_before_it_cancels_what_replays_a_job_of_it(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    """A replayed job has the overlap key of the one it copies, which may be that of a backfill of several at once."""
    one, other = pair
    schedule = add_schedule(one, policy=Policy(overlap="cancel_running"))
    one.execute("insert into sched.limits (key, slots) values ('$backfill-9', 2)")
    one.execute(
        "insert into sched.jobs (job_type, status, origin, schedule_id, schedule, overlap_key, holds_overlap)"
        " values ('x', 'pending', 'manual', %s, 's', '$backfill-9', true)",
        (schedule,),
    )
    plan_date(one, schedule, NOON)
    with connect(database) as observer:
        with one.transaction():
            one.execute("select sched.lock_keys(array['$backfill-9'])")
            firing = Waiting(other, "select outcome, enqueued from sched.fire(%s)", (NOON,)).until_blocked(observer)
            one.execute("select from sched.jobs where origin = 'manual' for update")
        assert firing.rows() == [("fired", 1)]

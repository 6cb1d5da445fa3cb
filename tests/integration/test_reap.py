"""The reaper: what becomes of expired leases, and its races with those who settle, beat and hand back."""

from __future__ import annotations

from datetime import timedelta

from scheduler.services.reaper import reap_once
from scheduler.storage.jobs import ReapResult
from tests.support.interleaving import Waiting
from tests.support.invariants import violations
from tests.support.leases import (
    BEAT,
    COMPLETE,
    REAP,
    Connection,
    add,
    claim,
    complete,
    expire,
    fail,
    outcomes,
    set_limit,
    status,
    statuses,
)


def reap(connection: Connection) -> tuple[bool, int, int, int, int]:
    row = connection.execute(REAP).fetchone()
    assert row is not None
    return tuple(row)


def lose(connection: Connection, job_id: int) -> None:
    """Claim, let the lease run out, reap."""
    assert claim(connection)[0] == [job_id]
    expire(connection, job_id)
    reap(connection)


def test_nothing_expired_is_nothing_done(one: Connection) -> None:
    add(one)
    claim(one)
    assert reap(one) == (False, 0, 0, 0, 0)
    assert statuses(one) == ["running"]


def test_the_first_lost_lease_makes_the_job_available_at_once_and_the_next_ones_after_a_backoff(
    one: Connection,
) -> None:
    (job_id,) = add(one, retry_base=timedelta(minutes=1), retry_jitter=0)
    lose(one, job_id)
    assert status(one, job_id) == ("pending", 1)
    lose(one, job_id)
    assert status(one, job_id) == ("scheduled", 2)
    row = one.execute("select available_at - clock_timestamp() from sched.jobs").fetchone()
    assert row is not None and timedelta(seconds=100) < row[0] <= timedelta(seconds=120)
    assert violations(one) == {}


def test_an_attempt_that_settles_in_between_starts_the_count_anew(one: Connection) -> None:
    (job_id,) = add(one, retry_base=timedelta(0))
    lose(one, job_id)
    fail(one, *claim(one))
    lose(one, job_id)
    assert status(one, job_id) == ("pending", 3)


def test_at_the_maximum_of_attempts_a_lost_lease_is_death_with_a_reason(one: Connection) -> None:
    (job_id,) = add(one, max_attempts=3, retry_base=timedelta(0))
    for _ in range(3):
        lose(one, job_id)
    assert status(one, job_id) == ("dead", 3)
    rows = one.execute("select number, outcome, error from sched.attempts order by number").fetchall()
    assert [(number, outcome) for number, outcome, _ in rows] == [(1, "lost"), (2, "lost"), (3, "lost")]
    assert all("worker died" in error for _, _, error in rows)
    assert one.execute("select kind from sched.events").fetchall() == [("job_dead",)]


def test_a_job_that_does_not_stop_when_asked_loses_its_lease_after_half_a_minute(one: Connection) -> None:
    first, second = add(one, 2)
    claim(one)
    asked = "update sched.jobs set cancel_requested_at = clock_timestamp() - %s::interval where id = %s"
    one.execute(asked, ("29 s", first))
    one.execute(asked, ("31 s", second))
    assert reap(one) == (False, 0, 0, 1, 0)
    assert statuses(one) == ["running", "cancelled"]


def test_reaping_skips_a_job_that_is_being_settled_and_does_not_wait(one: Connection, other: Connection) -> None:
    first, second = add(one, 2)
    _, tokens = claim(one)
    expire(one, second)
    other.execute("set lock_timeout = '5s'")
    with one.transaction():
        assert complete(one, [first], [tokens[0]]) == ["settled"]
        one.execute("select from sched.jobs where id = %s for update", (second,))
        assert reap(other) == (False, 0, 0, 0, 0)
    assert reap(other) == (False, 1, 0, 0, 0)
    assert statuses(one) == ["succeeded", "pending"]


def test_a_settlement_that_waited_for_the_reaper_is_lost(one: Connection, other: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    one.execute("update sched.jobs set cancel_requested_at = clock_timestamp() - interval '31 s'")
    with one.transaction():
        assert reap(one)[3] == 1
        settling = Waiting(other, COMPLETE, (ids, tokens, None)).until_blocked(one)
    assert settling.rows() == [("lost",)]
    assert statuses(one) == ["cancelled"]


def test_a_settlement_after_the_expiry_is_lost_even_before_the_reaper_came(one: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    expire(one, *ids)
    assert complete(one, ids, tokens) == ["lost"]
    assert statuses(one) == ["running"]


def test_a_beat_beside_the_reaper_is_told_nothing_and_then_that_it_lost(one: Connection, other: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    expire(one, *ids)
    with one.transaction():
        reap(one)
        assert outcomes(other, BEAT, ids, tokens) == []
    assert outcomes(other, BEAT, ids, tokens) == ["lost"]


def test_one_reaper_is_at_it_and_the_others_return_at_once(one: Connection, other: Connection) -> None:
    add(one)
    ids, _ = claim(one)
    expire(one, *ids)
    with one.transaction():
        assert reap(one)[1] == 1
        assert reap(other) == (True, 0, 0, 0, 0)


def test_a_lost_job_keeps_its_slot_and_a_dead_one_frees_it(one: Connection) -> None:
    set_limit(one, "k", 1)
    first, _ = add(one, 2, limit_key="k", max_attempts=2)
    lose(one, first)
    assert statuses(one) == ["pending", "waiting"]
    assert claim(one)[0] == [first]
    expire(one, first)
    assert reap(one)[2] == 1
    assert statuses(one) == ["dead", "pending"]
    assert violations(one) == {}


def test_the_reaper_admits_what_a_crash_left_waiting_beside_a_free_slot(one: Connection) -> None:
    set_limit(one, "k", 2)
    add(one, 3, limit_key="k")
    one.execute("update sched.jobs set status = 'waiting', waiting_for = 'k', holds_limit = false")
    assert reap(one) == (False, 0, 0, 0, 2)
    assert statuses(one) == ["pending", "pending", "waiting"]


def test_the_service_reports_counts(one: Connection) -> None:
    add(one)
    expire(one, *claim(one)[0])
    assert reap_once(one) == ReapResult(is_busy=False, retried=1, died=0, cancelled=0, admitted=0)


def test_a_backoff_that_doubles_beyond_what_an_interval_holds_is_the_longest_one(one: Connection) -> None:
    """A base of a day doubles out of range before the thirtieth attempt; the leases of other jobs are taken over."""
    day = timedelta(days=1)
    as_stored = "PT86400S"  # what a definition says
    patient, other_job = add(one, 2, max_attempts=50, retry_base=as_stored, retry_max=as_stored, retry_jitter=0)
    one.execute("update sched.jobs set attempt_count = 35, lost_in_a_row = 1 where id = %s", (patient,))
    claim(one)
    for job_id in (patient, other_job):
        expire(one, job_id)
    assert reap(one)[1] == 2
    assert (status(one, patient), status(one, other_job)) == (("scheduled", 36), ("pending", 1))
    row = one.execute("select available_at - clock_timestamp() from sched.jobs where id = %s", (patient,)).fetchone()
    assert row is not None and timedelta(hours=23) < row[0] <= day

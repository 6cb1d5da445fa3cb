"""Settling under races: every write is fenced by the token, answers are exact, and waiting changes nothing."""

from __future__ import annotations

import pytest

from tests.support.interleaving import Waiting
from tests.support.invariants import violations
from tests.support.leases import (
    BEAT,
    COMPLETE,
    FAIL,
    HAND_BACK,
    OTHER_TOKEN,
    Connection,
    add,
    claim,
    complete,
    entries_read,
    expire,
    fail,
    outcomes,
    set_limit,
    snapshot,
    status,
)


def test_answers_come_in_the_order_of_the_question(one: Connection) -> None:
    add(one, 4)
    ids, tokens = claim(one)
    assert complete(one, [ids[2]], [tokens[2]]) == ["settled"]
    mixed = [ids[3], ids[2], ids[0], ids[1]]
    assert complete(one, mixed, [tokens[3], tokens[2], OTHER_TOKEN, tokens[1]]) == [
        "settled",
        "already_yours",
        "lost",
        "settled",
    ]
    assert violations(one) == {}


def test_repeating_a_settlement_changes_nothing_and_is_told_so(one: Connection) -> None:
    (job_id,) = add(one, idempotency_key="k")
    ids, tokens = claim(one)
    assert complete(one, ids, tokens, [1]) == ["settled"]
    before = snapshot(one)
    assert complete(one, ids, tokens, [2]) == ["already_yours"]
    assert fail(one, ids, tokens) == ["already_yours"]
    assert snapshot(one) == before
    assert one.execute("select key, result, produced_by from sched.job_results").fetchall() == [("k", 1, job_id)]


@pytest.mark.parametrize("by", ["token", "expiry", "taken over", "missing"])
def test_a_stale_token_changes_no_row_by_any_function(one: Connection, by: str) -> None:
    (job_id,) = add(one)
    ids, tokens = claim(one)
    if by == "token":
        tokens = [OTHER_TOKEN]
    elif by == "expiry":
        expire(one, job_id)
    elif by == "taken over":
        expire(one, job_id)
        one.execute("select sched.reap()")
        claim(one)
        assert status(one, job_id) == ("running", 2)
    else:
        ids = [job_id + 1000]
    before = snapshot(one)
    assert complete(one, ids, tokens, [1]) == ["lost"]
    assert [fail(one, ids, tokens, how) for how in ("failed", "discarded", "held", "cancelled")] == [["lost"]] * 4
    assert outcomes(one, HAND_BACK, ids, tokens) == ["lost"]
    assert outcomes(one, BEAT, ids, tokens) == ["lost"]
    assert snapshot(one) == before


def test_both_attempts_of_a_job_that_was_taken_over_are_visible(one: Connection) -> None:
    (job_id,) = add(one)
    ids, stale = claim(one)
    expire(one, job_id)
    one.execute("select sched.reap()")
    _, tokens = claim(one)
    assert complete(one, ids, stale) == ["lost"]
    assert complete(one, ids, tokens) == ["settled"]
    rows = one.execute("select number, outcome from sched.attempts order by number").fetchall()
    assert rows == [(1, "lost"), (2, "succeeded")]


def test_two_settlements_of_one_attempt_at_once_count_once(one: Connection, other: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    with one.transaction():
        assert complete(one, ids, tokens) == ["settled"]
        second = Waiting(other, FAIL, (ids, tokens, ["failed"], ["x"])).until_blocked(one)
    assert second.rows() == [("already_yours",)]
    assert violations(one) == {}


def test_a_settlement_that_waited_for_a_takeover_is_lost(one: Connection, other: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    with one.transaction():
        one.execute(
            "update sched.jobs set status = 'pending', lease_owner = null, lease_token = null, lease_expires_at = null"
        )
        settling = Waiting(other, COMPLETE, (ids, tokens, None)).until_blocked(one)
    assert settling.rows() == [("lost",)]
    assert status(one, ids[0]) == ("pending", 1)


def test_a_settlement_that_waited_until_its_lease_was_withdrawn_reads_the_clock_again(
    one: Connection, other: Connection
) -> None:
    add(one)
    ids, tokens = claim(one)
    with one.transaction():
        expire(one, *ids)
        settling = Waiting(other, COMPLETE, (ids, tokens, None)).until_blocked(one)
    assert settling.rows() == [("lost",)]
    assert status(one, ids[0])[0] == "running"


def test_a_settlement_beside_a_beat_waits_and_then_settles(one: Connection, other: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    with one.transaction():
        assert outcomes(one, BEAT, ids, tokens) == ["extended"]
        settling = Waiting(other, COMPLETE, (ids, tokens, None)).until_blocked(one)
    assert settling.rows() == [("settled",)]


def test_two_batches_that_name_the_same_jobs_in_opposite_order_do_not_deadlock(
    one: Connection, other: Connection
) -> None:
    add(one, 50)
    ids, tokens = claim(one)
    with one.transaction():
        one.execute("select from sched.jobs where id = %s for update", (ids[0],))
        first = Waiting(other, COMPLETE, (ids[::-1], tokens[::-1], None)).until_blocked(one)
        # Were rows taken in the order given, the other side would hold this one by now.
        one.execute("select from sched.jobs where id = %s for update nowait", (ids[-1],))
    assert first.rows() == [("settled",)] * 50


def test_a_batch_is_settled_by_index_whatever_the_table_looked_like_when_it_was_planned(one: Connection) -> None:
    add(one)
    assert complete(one, *claim(one)) == ["settled"]  # the plan is made now, on an empty table
    one.execute(
        """
        insert into sched.jobs (job_type, status, completed_at)
        select 'old', 'succeeded', clock_timestamp() from generate_series(1, 100000)
        """
    )
    for _ in range(2):
        add(one, 3)
        with one.transaction():
            before = entries_read(one)
            ids, tokens = claim(one)
            assert complete(one, ids, tokens) == ["settled"] * 3
            assert 0 < entries_read(one) - before < 100


def test_a_job_held_by_its_handler_frees_its_slot_for_the_next(one: Connection) -> None:
    set_limit(one, "k", 1)
    first, second = add(one, 2, limit_key="k")
    assert status(one, second)[0] == "waiting"
    ids, tokens = claim(one)
    assert ids == [first]
    assert fail(one, ids, tokens, "held") == ["settled"]
    assert (status(one, first)[0], status(one, second)[0]) == ("held", "pending")
    assert violations(one) == {}


def test_a_job_in_backoff_keeps_its_slot(one: Connection) -> None:
    set_limit(one, "k", 1)
    add(one, 2, limit_key="k")
    ids, tokens = claim(one)
    fail(one, ids, tokens)
    one.execute("update sched.jobs set available_at = clock_timestamp() where status = 'scheduled'")
    assert claim(one)[0] == ids
    assert violations(one) == {}


def test_a_job_asked_to_cancel_ends_cancelled_however_it_fails(one: Connection) -> None:
    (job_id,) = add(one)
    ids, tokens = claim(one)
    one.execute("update sched.jobs set cancel_requested_at = clock_timestamp()")
    assert one.execute(
        "select is_cancel_requested from sched.heartbeat(%s, %s::uuid[], '15 s')", (ids, tokens)
    ).fetchall() == [(True,)]
    assert fail(one, ids, tokens) == ["settled"]
    assert status(one, job_id) == ("cancelled", 1)


def test_a_job_handed_back_that_was_asked_to_cancel_ends_and_frees_its_slot(one: Connection) -> None:
    one.execute("insert into sched.limits (key, slots) values ('k', 1)")
    for _ in range(2):
        one.execute("select sched.enqueue('x', p_limit_key => 'k')")
    ids, tokens = claim(one)
    one.execute("select sched.cancel(%s, 'person')", (ids[0],))
    assert outcomes(one, HAND_BACK, ids, tokens) == ["settled"]
    assert status(one, ids[0]) == ("cancelled", 0)
    assert claim(one)[0] == [ids[0] + 1]
    assert violations(one) == {}


def test_a_job_handed_back_is_claimable_at_once_and_has_its_attempt_back(one: Connection) -> None:
    (job_id,) = add(one)
    ids, tokens = claim(one)
    assert outcomes(one, HAND_BACK, ids, tokens) == ["settled"]
    assert status(one, job_id) == ("pending", 0)
    assert claim(one)[0] == ids
    events = one.execute("select kind, job_id from sched.events").fetchall()
    assert events == [("job_handed_back", job_id)]
    assert violations(one) == {}

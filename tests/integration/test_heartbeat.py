"""The heartbeat: extends what is ours, says what is lost, and never waits for anybody."""

from __future__ import annotations

from tests.support.leases import BEAT, OTHER_TOKEN, Connection, add, claim, complete, expire, outcomes, status, updates


def test_a_beat_extends_the_lease_and_nothing_else(one: Connection) -> None:
    add(one)
    ids, tokens = claim(one, "5 s")
    before = one.execute("select lease_expires_at, to_jsonb(j) - 'lease_expires_at' - 'heartbeat_at' from sched.jobs j")
    ((expiry, rest),) = before.fetchall()
    assert outcomes(one, BEAT, ids, tokens) == ["extended"]
    after = one.execute("select lease_expires_at, to_jsonb(j) - 'lease_expires_at' - 'heartbeat_at' from sched.jobs j")
    ((later, same),) = after.fetchall()
    assert later > expiry
    assert same == rest


def test_each_job_of_a_batch_is_judged_for_itself(one: Connection) -> None:
    add(one, 4)
    ids, tokens = claim(one)
    complete(one, ids[:1], tokens[:1])
    expire(one, ids[1])
    asked = [*ids, ids[3] + 1000]
    rows = one.execute(
        "select id, outcome from sched.heartbeat(%s, %s::uuid[], '15 s')",
        (asked, [tokens[0], tokens[1], OTHER_TOKEN, tokens[3], OTHER_TOKEN]),
    ).fetchall()
    assert dict(rows) == {
        ids[0]: "lost",
        ids[1]: "lost",
        ids[2]: "lost",
        ids[3]: "extended",
        asked[4]: "lost",
    }


def test_a_beat_beside_an_open_completing_transaction_does_not_wait_and_does_not_say_lost(
    one: Connection, other: Connection
) -> None:
    add(one, 2)
    ids, tokens = claim(one)
    other.execute("set lock_timeout = '5s'")
    with one.transaction():
        assert complete(one, ids[:1], tokens[:1]) == ["settled"]
        rows = other.execute(
            "select id, outcome from sched.heartbeat(%s, %s::uuid[], '15 s')", (ids, tokens)
        ).fetchall()
        assert rows == [(ids[1], "extended")]
    assert status(one, ids[0])[0] == "succeeded"


def test_a_beat_beside_a_completion_that_is_rolled_back_goes_on_afterwards(one: Connection, other: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    with one.transaction(force_rollback=True):
        complete(one, ids, tokens)
        assert outcomes(other, BEAT, ids, tokens) == []
    assert outcomes(other, BEAT, ids, tokens) == ["extended"]


def test_beats_are_hot_updates(one: Connection) -> None:
    add(one, 2)
    one.execute("vacuum sched.jobs")
    ids, tokens = claim(one)
    with one.transaction():
        hot, updated = updates(one)
        for _ in range(3):
            assert outcomes(one, BEAT, ids, tokens) == ["extended"] * 2
        hot_after, updated_after = updates(one)
    assert updated_after - updated == 6
    assert hot_after - hot == 6

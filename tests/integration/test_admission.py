"""Slots: a limit is exact under concurrency, in order of priority, and costs those behind other keys nothing."""

from __future__ import annotations

import threading

import pytest

from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.invariants import violations
from tests.support.leases import COMPLETE, Connection, add, claim, complete, entries_read, set_limit, statuses


def test_jobs_beyond_the_slots_wait_and_are_admitted_by_priority_then_age(one: Connection) -> None:
    set_limit(one, "k", 1)
    first, second, third = add(one, 3, limit_key="k")
    one.execute("update sched.jobs set priority = 1 where id = %s", (third,))
    order = []
    while (claimed := claim(one))[0]:
        order += claimed[0]
        complete(one, *claimed)
    assert order == [first, third, second]


def test_a_job_added_while_the_last_slot_is_being_freed_is_admitted(one: Connection, other: Connection) -> None:
    set_limit(one, "k", 1)
    add(one, limit_key="k")
    ids, tokens = claim(one)
    with one.transaction():
        complete(one, ids, tokens)
        adding = Waiting(other, "select id from sched.enqueue('x', p_limit_key => 'k')").until_blocked(one)
    adding.rows()
    assert statuses(one) == ["succeeded", "pending"]


def test_a_slot_freed_while_a_job_is_being_added_goes_to_it(one: Connection, other: Connection) -> None:
    set_limit(one, "k", 1)
    add(one, limit_key="k")
    ids, tokens = claim(one)
    with one.transaction():
        add(one, limit_key="k")
        completing = Waiting(other, COMPLETE, (ids, tokens, None)).until_blocked(one)
    assert completing.rows() == [("settled",)]
    assert statuses(one) == ["succeeded", "pending"]


def test_batches_over_several_keys_take_them_in_one_order(one: Connection, other: Connection) -> None:
    for key in ("a", "b"):
        set_limit(one, key, 2)
    add(one, 2, limit_key="a")
    add(one, 2, limit_key="b")
    ids, tokens = claim(one)
    with one.transaction():
        one.execute("select from sched.limits where key = 'a' for update")
        # It names a job of b first, and still must wait for a without holding b.
        Waiting(other, COMPLETE, ([ids[2], ids[0]], [tokens[2], tokens[0]], None)).until_blocked(one)
        one.execute("select from sched.limits where key = 'b' for update nowait")


@pytest.mark.parametrize("slots", [1, 3])
def test_a_limit_is_never_exceeded_by_many_at_once(database: str, one: Connection, slots: int) -> None:
    set_limit(one, "k", slots)
    jobs = 120
    highest = 0
    done = threading.Event()

    def produce(connection: Connection) -> None:
        add(connection, jobs // 3, limit_key="k")

    def work(connection: Connection) -> None:
        while not done.is_set():
            if (claimed := claim(connection))[0]:
                complete(connection, *claimed)

    def run(target: object) -> None:
        with connect(database) as connection:
            target(connection)  # type: ignore[operator]

    threads = [threading.Thread(target=run, args=(target,)) for target in [produce] * 3 + [work] * 4]
    for thread in threads:
        thread.start()
    try:
        while (states := statuses(one)).count("succeeded") < jobs:
            highest = max(highest, states.count("running") + states.count("pending"))
            assert violations(one) == {}
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert 1 <= highest <= slots


def test_many_jobs_behind_a_full_limit_do_not_slow_other_claims_or_the_reaper(one: Connection) -> None:
    set_limit(one, "k", 1)
    add(one, limit_key="k")
    claim(one)
    one.execute(
        """
        insert into sched.jobs (job_type, status, waiting_for, limit_key)
        select 'x', 'waiting', 'k', 'k' from generate_series(1, 100000)
        """
    )
    add(one, 3)
    with one.transaction():
        before = entries_read(one)
        ids, tokens = claim(one)
        assert len(ids) == 3
        assert complete(one, ids, tokens) == ["settled"] * 3
        assert entries_read(one) - before < 100
    with one.transaction():
        before = entries_read(one)
        one.execute("select sched.reap()")
        # The planner itself may look at some hundred entries at an end of an index.
        assert entries_read(one) - before < 1000

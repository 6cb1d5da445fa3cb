"""Designs that look right and are not, to prove that the tests of the right ones can fail."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from scheduler.storage.database import Connection
from tests.support.build import NOON, Policy, add_schedule, claim_all, fire, jobs, ledger, plan_date
from tests.support.database import connect
from tests.support.wait import wait_for
from tests.support.wrong_design import replace_in

BEAT = "select outcome from sched.heartbeat(array[%s]::bigint[], array[%s]::uuid[], '15 s')"
COMPLETE = "select * from sched.complete(array[%s]::bigint[], array[%s]::uuid[], array['null'::jsonb])"


@pytest.fixture
def pair(database: str) -> Iterator[tuple[Connection, Connection]]:
    with connect(database) as one, connect(database) as other:
        yield one, other


def test_a_beat_that_waits_for_row_locks_hangs_beside_an_open_completing_transaction(
    database: str, pair: tuple[Connection, Connection]
) -> None:
    one, other = pair
    schedule = add_schedule(one)
    plan_date(one, schedule, NOON)
    fire(one, NOON)
    ((job_id, token),) = claim_all(one)

    with one.transaction():
        one.execute(COMPLETE, (job_id, token))
        assert other.execute(BEAT, (job_id, token)).fetchall() == []  # the right design: in neither answer

        with connect(database) as watcher, ThreadPoolExecutor(1) as pool:
            replace_in(watcher, "heartbeat", "for update skip locked", "for update")
            beating = pool.submit(other.execute, BEAT, (job_id, token))
            wait_for(
                lambda: (
                    watcher.execute(
                        "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                        (other.info.backend_pid,),
                    ).fetchone()
                    is not None
                ),
                10,
                "the beat to hang",
            )
            other.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled):
                beating.result(10)


def test_a_pass_without_the_fallback_lets_one_poisoned_schedule_stop_all(pair: tuple[Connection, Connection]) -> None:
    one, _ = pair
    one.execute(
        "create or replace function sched.is_transient(p_sqlstate text) returns boolean language sql immutable"
        " as $$ select true $$"
    )
    ids = [add_schedule(one, f"s{n}", Policy(job_type="poison" if n == 7 else "fine")) for n in range(10)]
    for schedule in ids:
        plan_date(one, schedule, NOON)
    one.execute("alter table sched.jobs add constraint no_poison check (job_type <> 'poison')")
    with pytest.raises(psycopg.errors.CheckViolation):
        fire(one, NOON)
    assert jobs(one, "id") == []
    assert {row[1] for schedule in ids for row in ledger(one, schedule)} == {"planned"}

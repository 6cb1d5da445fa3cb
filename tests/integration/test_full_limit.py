"""100,000 jobs behind a limit that is full: its slots stay exact, and the jobs of others cost what they cost before."""

from __future__ import annotations

import pytest

from scheduler.storage.database import Connection
from tests.support.database import connect
from tests.support.invariants import violations
from tests.support.leases import add, claim, complete, pages_read, set_limit

SLOTS = 3
WAITING = 100_000
BATCH = 10
CLAIM = "select id from sched.claim('{default}', gen_random_uuid(), %s, '15 s')"
COMPLETE = "select outcome from sched.complete(%s::bigint[], %s::uuid[], null)"


@pytest.mark.timeout(300)
def test_100_000_jobs_behind_a_full_limit_cost_others_nothing_and_its_slots_stay_exact(database: str) -> None:
    with connect(database) as db:
        set_limit(db, "k", SLOTS)
        holders = add(db, SLOTS, limit_key="k")
        held = claim(db)
        assert held[0] == holders
        empty = pages_of_others(db)
        db.execute(
            """
            insert into sched.jobs (job_type, status, waiting_for, limit_key)
            select 'x', 'waiting', 'k', 'k' from generate_series(1, %s)
            """,
            (WAITING,),
        )
        full = pages_of_others(db)
        db.execute("analyze sched.jobs")
        analyzed = pages_of_others(db)
        print(f"\npages of a claim and of a settlement: {empty} alone, {full} and {analyzed} beside {WAITING:,}")
        assert max(full[0], analyzed[0]) <= 1.5 * empty[0]
        assert max(full[1], analyzed[1]) <= 1.5 * empty[1]

        for _ in range(BATCH):  # as many jobs of the key as have slots at a time, never more, never fewer
            assert complete(db, *held) == ["settled"] * SLOTS
            assert admitted(db) == SLOTS
            held = claim(db)
            assert len(held[0]) == SLOTS
            assert admitted(db) == SLOTS
        assert violations(db) == {}


def pages_of_others(db: Connection) -> tuple[int, int]:
    """Pages that a claim and a settlement of ten jobs without a key read, once their functions are planned."""
    for _ in range(3):
        add(db, BATCH)
        claimed = pages_read(db, CLAIM, BATCH)
        rows = db.execute(
            "select id, lease_token from sched.jobs where status = 'running' and limit_key is null"
        ).fetchall()
        assert len(rows) == BATCH
        settled = pages_read(db, COMPLETE, [row[0] for row in rows], [row[1] for row in rows])
    return claimed, settled


def admitted(db: Connection) -> int:
    """Jobs of the key that run or may start."""
    row = db.execute(
        "select count(*) from sched.jobs where limit_key = 'k' and status in ('pending', 'running')"
    ).fetchone()
    assert row is not None
    return int(row[0])

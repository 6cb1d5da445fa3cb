"""WK-08: a session that holds a snapshot for long, while jobs are drained whose dead rows cannot be removed.

Rates are printed (``-s``); SCHED_BENCH_JOBS sets how many jobs a round drains. What is judged are pages read, which no
other program on the machine changes: a beat and a settlement read no more than before, and a claim a little more for
each job drained since, because it passes the dead entries at the beginning of its index.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import pytest

from scheduler.handlers import HandlerRegistry, Job
from scheduler.storage.database import Connection
from tests.support.cli import sched
from tests.support.database import connect
from tests.support.leases import add, pages_read
from tests.support.working import drain

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

JOBS = int(os.environ.get("SCHED_BENCH_JOBS", "3000"))
ROUNDS = 6
BATCH = 10
CLAIM_PAGES_PER_JOB = 0.1

CLAIM = "select id, lease_token from sched.claim('{default}', gen_random_uuid(), %s, '15 s')"
BEAT = "select outcome from sched.heartbeat(%s::bigint[], %s::uuid[], '15 s')"
COMPLETE = "select outcome from sched.complete(%s::bigint[], %s::uuid[], null)"


def test_a_session_with_an_old_snapshot_slows_claims_little_and_is_named(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.services.doctor.IDLE_IN_TRANSACTION", timedelta(0))
    with connect(database) as db, connect(database, autocommit=False) as report:
        usual = [rate(database, db) for _ in range(2)][-1]
        before = pages(db)
        report.execute("set transaction isolation level repeatable read")
        report.execute("set application_name = 'reports'")
        report.execute("select count(*) from sched.jobs")
        rates = [rate(database, db) for _ in range(ROUNDS)]
        after = pages(db)
        told = sched("doctor", "--dsn", database)
        assert f"pid {report.info.backend_pid} (reports) idle in transaction" in told.out

    shares = ", ".join(f"{each / usual:.0%}" for each in rates)
    print(f"\n{usual:,.0f} jobs/s; of that under an old snapshot, after every {JOBS:,} jobs: {shares}")
    print("".join(f"  pages of a {name}: {before[name]}, then {after[name]}\n" for name in before), end="")
    assert after["beat"] <= 2 * before["beat"]
    assert after["settlement"] <= 2 * before["settlement"]
    assert after["claim"] <= 2 * before["claim"] + CLAIM_PAGES_PER_JOB * ROUNDS * JOBS


def rate(dsn: str, db: Connection) -> float:
    """Jobs a second of a worker that drains a round."""
    registry = HandlerRegistry()

    @registry.handler("short")
    async def short(job: Job) -> None:
        return None

    db.execute(
        "insert into sched.jobs (job_type, status) select 'short', 'pending' from generate_series(1, %s)", (JOBS,)
    )
    began = time.perf_counter()
    assert drain(dsn, registry).succeeded == JOBS
    return JOBS / (time.perf_counter() - began)


def pages(db: Connection) -> dict[str, int]:
    """Pages that a claim, a beat and a settlement of ten jobs read, once their functions are planned."""
    for _ in range(3):
        add(db, BATCH)
        claim = pages_read(db, CLAIM, BATCH)
        rows = db.execute("select id, lease_token from sched.jobs where status = 'running'").fetchall()
        assert len(rows) == BATCH
        leases = [row[0] for row in rows], [row[1] for row in rows]
        found = {"claim": claim, "beat": pages_read(db, BEAT, *leases), "settlement": pages_read(db, COMPLETE, *leases)}
    return found

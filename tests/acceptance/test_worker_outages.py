"""The database restarts under load: nothing acknowledged is lost, and workers go on soon."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from datetime import timedelta

import psycopg
import pytest

from scheduler.handlers import HandlerRegistry, Job
from scheduler.storage.database import Database
from scheduler.storage.migrations import migrate
from tests.support.cluster import Cluster, available_servers
from tests.support.invariants import violations
from tests.support.wait import wait_for
from tests.support.working import running_worker

pytestmark = pytest.mark.acceptance

RESTARTS = int(os.environ.get("SCHED_TEST_RESTARTS", "5"))


@pytest.mark.timeout(600)
def test_a_database_that_restarts_under_load_loses_no_acknowledged_job() -> None:
    registry = HandlerRegistry()

    @registry.handler("quick")
    async def quick(job: Job) -> int:
        return job.attempt

    acknowledged: list[int] = []
    done = threading.Event()

    def produce(dsn: str) -> None:
        while not done.is_set():
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as connection:
                while not done.is_set():
                    row = connection.execute("select id from sched.enqueue('quick', p_max_attempts => 1000)").fetchone()
                    assert row is not None
                    acknowledged.append(row[0])

    binaries = next(iter(available_servers().values()))
    with Cluster.start(binaries.bin_dir) as cluster:
        dsn = cluster.dsn()
        with Database(dsn).connection() as connection:
            migrate(connection)
        producer = threading.Thread(target=produce, args=(dsn,))
        with running_worker(dsn, registry, concurrency=50, lease=timedelta(seconds=3)):
            producer.start()
            waits = []
            try:
                for number in range(RESTARTS):
                    before = len(acknowledged)
                    wait_for(lambda before=before: len(acknowledged) > before + 50, 30, "some load")
                    if number % 2:
                        cluster.stop("immediate")
                    cluster.restart()
                    waits.append(_time_to_next_claim(dsn))
            finally:
                done.set()
                producer.join()
            wait_for(lambda: _unfinished(dsn) == 0, 60, "all jobs to be finished")
        with psycopg.connect(dsn) as connection:
            rows = connection.execute("select id from sched.jobs where status = 'succeeded'").fetchall()
            assert set(acknowledged) <= {row[0] for row in rows}
            assert violations(connection) == {}
    print(f"\n{RESTARTS} restarts, {len(acknowledged):,} jobs; next claim after {max(waits):.2f} s at most")
    assert max(waits) < 2


def _time_to_next_claim(dsn: str) -> float:
    began = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        claimed = "select from sched.jobs where started_at > %s limit 1"
        wait_for(lambda: connection.execute(claimed, row).fetchone() is not None, 30, "a claim after the restart")
    return time.monotonic() - began


def _unfinished(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select count(*) from sched.jobs where status <> 'succeeded'").fetchone()
    assert row is not None
    return int(row[0])

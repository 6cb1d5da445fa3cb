"""How a worker learns of work: hints, the look every second, and a pooler that swallows hints (WK-06, WK-07)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from scheduler.handlers import HandlerRegistry, Job
from tests.support.invariants import violations
from tests.support.pooler import transaction_pooler
from tests.support.require import require
from tests.support.wait import wait_for
from tests.support.working import drain, enqueue, running_worker, wait_for_status

IDLE_SECONDS = 5.0
WINDOWS = 3
SETTLING_SECONDS = 2.5
"""Servers count transactions with a delay of a second or two."""


@pytest.fixture
def registry() -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.handler("quick")
    def quick(job: Job) -> int:
        return job.id

    return registry


@pytest.fixture
def pooled(database: str) -> Iterator[str]:
    require("pgbouncer")
    with (
        tempfile.TemporaryDirectory(prefix="sched-test-") as directory,
        transaction_pooler(database, Path(directory)) as dsn,
    ):
        yield dsn


def test_an_idle_worker_sends_one_statement_a_second_at_most(database: str, registry: HandlerRegistry) -> None:
    with running_worker(database, registry), psycopg.connect(database, autocommit=True) as connection:
        wait_for(lambda: _wants_hints(database), 10, "the worker to be idle")
        _pass_time(SETTLING_SECONDS)
        # The server counts autovacuum's transactions in this database too; one window without them is enough.
        rates = [_statements_a_second(connection) for _ in range(WINDOWS)]
    assert all(rate >= 0.5 for rate in rates)
    assert min(rates) <= 1.2


def _statements_a_second(connection: psycopg.Connection[Any]) -> float:
    """How many transactions others ran in this database, per second, while nothing happened."""
    before, began = _transactions(connection), time.monotonic()
    _pass_time(IDLE_SECONDS)
    sent = _transactions(connection) - before - 1
    return sent / (time.monotonic() - began)


def test_the_look_finds_work_for_which_no_hint_arrived(database: str, registry: HandlerRegistry) -> None:
    with running_worker(database, registry, poll=timedelta(milliseconds=200)):
        wait_for(lambda: _wants_hints(database), 10, "the worker to be idle")
        with psycopg.connect(database, autocommit=True) as connection:
            row = connection.execute(
                "insert into sched.jobs (job_type, status) values ('quick', 'pending') returning id"
            ).fetchone()
        assert row is not None
        wait_for_status(database, row[0], "succeeded")


def test_a_retry_is_picked_up_when_it_is_due(database: str, registry: HandlerRegistry) -> None:
    with running_worker(database, registry):
        wait_for(lambda: _wants_hints(database), 10, "the worker to be idle")
        with psycopg.connect(database, autocommit=True) as connection:
            row = connection.execute(
                "select id from sched.enqueue('quick', p_run_at => clock_timestamp() + interval '1 s')"
            ).fetchone()
        assert row is not None
        job = wait_for_status(database, row[0], "succeeded")
        assert timedelta(0) <= job["started_at"] - job["available_at"] < timedelta(seconds=3)


def test_a_listener_that_sits_in_a_transaction_does_not_stop_enqueuing(
    database: str, registry: HandlerRegistry
) -> None:
    with psycopg.connect(database) as stuck, running_worker(database, registry):
        stuck.execute("listen sched_jobs")
        stuck.commit()
        stuck.execute("select 1")  # and sits there
        for _ in range(20):
            job_id = enqueue(database, "quick")
        wait_for_status(database, job_id, "succeeded")


def test_work_goes_on_behind_a_transaction_pooler(database: str, pooled: str, registry: HandlerRegistry) -> None:
    jobs = [enqueue(database, "quick") for _ in range(50)]
    with running_worker(pooled, registry) as first, running_worker(pooled, registry) as second:
        for job_id in jobs:
            wait_for_status(database, job_id, "succeeded")
        late = enqueue(database, "quick")
        wait_for_status(database, late, "succeeded")
        assert not _wants_hints(database)
    assert first.join().succeeded + second.join().succeeded == 51
    with psycopg.connect(database) as connection:
        assert violations(connection) == {}
        left = connection.execute(
            "select pg_listening_channels() union all select objid::text from pg_locks where locktype = 'advisory'"
        )
        assert left.fetchall() == []


def test_draining_behind_a_transaction_pooler_ends(database: str, pooled: str, registry: HandlerRegistry) -> None:
    for _ in range(5):
        enqueue(database, "quick")
    assert drain(pooled, registry).succeeded == 5


def _pass_time(seconds: float) -> None:
    """Let time pass: here it is what is measured against, not a guess at when something is done."""
    ends = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= ends, seconds + 10, "time to pass")


def _wants_hints(dsn: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute("select from sched.workers where has_free_slots").fetchone() is not None


def _transactions(connection: psycopg.Connection) -> int:
    """Transactions of other sessions so far, as far as they have been reported."""
    row = connection.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])

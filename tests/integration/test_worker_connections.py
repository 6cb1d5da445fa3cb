"""A worker whose connections break: WK-05, outages, and leases that cannot be extended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from scheduler.errors import StorageError
from scheduler.handlers import HandlerRegistry, Job, LeaseLost
from scheduler.services.worker import Worker, WorkerSettings
from scheduler.storage.database import Database
from tests.support.invariants import violations
from tests.support.proxy import Cut, Proxy
from tests.support.wait import wait_for
from tests.support.working import attempts_of, drain, enqueue, job_row, running_worker, wait_for_status


@pytest.fixture
def registry() -> HandlerRegistry:
    return HandlerRegistry()


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    with Proxy(database) as proxy:
        yield proxy


@pytest.mark.parametrize("when", list(Cut))
@pytest.mark.parametrize("succeeds", [True, False])
def test_a_settlement_whose_connection_breaks_is_repeated_and_the_handler_is_not(
    database: str, registry: HandlerRegistry, proxy: Proxy, when: Cut, succeeds: bool
) -> None:
    runs: list[int] = []

    @registry.handler("once")
    def once(job: Job) -> str:
        runs.append(job.attempt)
        if not succeeds:
            raise RuntimeError("broken")
        return "done"

    job_id = enqueue(database, "once", idempotency_key="k")
    proxy.cut_next("sched.complete" if succeeds else "sched.fail", when)
    result = drain(proxy.dsn, registry)
    assert proxy.cuts == 1
    assert runs == [1]
    assert (result.succeeded, result.failed, result.lost) == ((1, 0, 0) if succeeds else (0, 1, 0))
    assert job_row(database, job_id)["status"] == ("succeeded" if succeeds else "scheduled")
    assert len(attempts_of(database, job_id)) == 1


@pytest.mark.parametrize("when", list(Cut))
def test_a_claim_whose_connection_breaks_leaves_no_job_behind(
    database: str, registry: HandlerRegistry, proxy: Proxy, when: Cut
) -> None:
    @registry.handler("once")
    def once(job: Job) -> None:
        return None

    job_id = enqueue(database, "once")
    proxy.cut_next("sched.claim", when)
    assert drain(proxy.dsn, registry, lease=timedelta(minutes=5)).succeeded == 1
    assert [attempt["outcome"] for attempt in attempts_of(database, job_id)] == ["succeeded"]


def test_all_connections_may_break_at_any_time(database: str, registry: HandlerRegistry, proxy: Proxy) -> None:
    @registry.handler("quick")
    async def quick(job: Job) -> None:
        await asyncio.sleep(0.001)

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select sched.enqueue('quick', p_max_attempts => 50) from generate_series(1, 2000)")
    done = threading.Event()

    def break_often() -> None:
        while not done.wait(0.1):
            proxy.cut_all()

    breaking = threading.Thread(target=break_often)
    with running_worker(proxy.dsn, registry, concurrency=20, lease=timedelta(seconds=1)):
        breaking.start()
        try:
            wait_for(lambda: _count(database, "succeeded") >= 1000, 60, "half of the jobs")
        finally:
            done.set()
            breaking.join()
        wait_for(lambda: _count(database, "succeeded") == 2000, 60, "all jobs to succeed")
    with psycopg.connect(database) as connection:
        assert violations(connection) == {}


def test_work_is_ended_when_its_lease_can_no_longer_be_trusted_and_before_it_expires(
    database: str, registry: HandlerRegistry, proxy: Proxy
) -> None:
    stopped_at: list[float] = []

    @registry.handler("long")
    async def long(job: Job) -> None:
        if job.attempt > 1:
            return
        try:
            await asyncio.sleep(60)
        finally:
            stopped_at.append(time.time())

    with running_worker(proxy.dsn, registry, lease=timedelta(seconds=2)):
        job_id = enqueue(database, "long")
        wait_for_status(database, job_id, "running")
        proxy.is_refusing = True
        proxy.cut_all()
        wait_for(lambda: stopped_at, 10, "the handler to be ended")
        assert stopped_at[0] < job_row(database, job_id)["lease_expires_at"].timestamp()
        proxy.is_refusing = False
        wait_for_status(database, job_id, "succeeded")
    assert len(attempts_of(database, job_id)) == 2


def test_a_worker_that_cannot_reach_the_database_at_the_start_says_so(registry: HandlerRegistry) -> None:
    with pytest.raises(StorageError, match="not reachable"):
        Worker(Database("host=127.0.0.1 port=1 connect_timeout=2"), registry, WorkerSettings()).run(threading.Event())


def test_output_and_completion_commit_together(database: str, registry: HandlerRegistry) -> None:
    _create_output(database)

    @registry.handler("pay")
    def pay(job: Job) -> str:
        with job.transaction() as connection:
            connection.execute("insert into public.output values (%s)", (job.id,))
            job.result = {"paid": True}
        return "ignored"

    job_id = enqueue(database, "pay", idempotency_key="k")
    assert drain(database, registry).succeeded == 1
    row = job_row(database, job_id)
    assert (row["status"], row["result"]) == ("succeeded", {"paid": True})
    assert _output(database) == [job_id]
    assert [attempt["outcome"] for attempt in attempts_of(database, job_id)] == ["succeeded"]


def test_an_error_inside_the_transaction_rolls_back_and_the_attempt_fails(
    database: str, registry: HandlerRegistry
) -> None:
    _create_output(database)

    @registry.handler("pay")
    def pay(job: Job) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable), job.transaction() as connection:
            connection.execute("insert into public.output values (1)")
            connection.execute("select from public.missing")
        raise RuntimeError("gave up")

    job_id = enqueue(database, "pay")
    drain(database, registry)
    assert job_row(database, job_id)["last_error"].startswith("RuntimeError: gave up")
    assert _output(database) == []


def test_a_transaction_of_a_lost_lease_raises_and_rolls_back(database: str, registry: HandlerRegistry) -> None:
    _create_output(database)
    raised = threading.Event()

    @registry.handler("pay")
    def pay(job: Job) -> None:
        if job.attempt > 1:
            return
        try:
            with job.transaction() as connection:
                connection.execute("insert into public.output values (1)")
                _take_away(database, job.id)
        except LeaseLost:
            raised.set()
            raise

    job_id = enqueue(database, "pay")
    drain(database, registry)
    assert raised.is_set()
    assert _output(database) == []
    assert [attempt["outcome"] for attempt in attempts_of(database, job_id)] == ["lost", "succeeded"]


def test_a_long_transaction_keeps_its_lease_and_is_not_taken_for_lost(database: str, registry: HandlerRegistry) -> None:
    _create_output(database)

    @registry.handler("pay")
    def pay(job: Job) -> None:
        with job.transaction() as connection:
            connection.execute("insert into public.output values (%s)", (job.id,))
            connection.execute("select pg_sleep(2.5)")

    job_id = enqueue(database, "pay")
    result = drain(database, registry, lease=timedelta(seconds=1))
    assert (result.succeeded, result.lost) == (1, 0)
    assert _output(database) == [job_id]


def _create_output(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table public.output (job_id bigint)")


def _output(dsn: str) -> list[int]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [row[0] for row in connection.execute("select job_id from public.output").fetchall()]


def _take_away(dsn: str, job_id: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update sched.jobs set lease_expires_at = clock_timestamp() where id = %s", (job_id,))
        connection.execute("select sched.reap()")


def _count(dsn: str, status: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select count(*) from sched.jobs where status = %s", (status,)).fetchone()
    assert row is not None
    return int(row[0])

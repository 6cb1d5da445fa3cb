"""How many jobs a worker claims at once, and how soon it takes what becomes due: with the look every minute only."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from scheduler.handlers import HandlerRegistry, Job, Retry
from tests.support.invariants import violations
from tests.support.wait import wait_for
from tests.support.working import drain, enqueue, job_row, running_worker, wait_for_status

NEVER = timedelta(minutes=10)
"""A poll interval no test waits for."""
CONCURRENCY = 3


@pytest.fixture
def registry() -> HandlerRegistry:
    return HandlerRegistry()


@pytest.mark.parametrize("job_type", ["plain", "async"])
def test_short_jobs_are_claimed_ahead_and_never_more_run_at_once_than_slots(
    database: str, registry: HandlerRegistry, job_type: str
) -> None:
    running = most = 0
    lock = threading.Lock()

    def enter() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)

    def leave() -> None:
        nonlocal running
        with lock:
            running -= 1

    @registry.handler("plain")
    def plain(job: Job) -> None:
        enter()
        leave()

    @registry.handler("async")
    async def asynchronous(job: Job) -> None:
        enter()
        await asyncio.sleep(0)
        leave()

    _enqueue_many(database, [job_type] * 1000)
    assert drain(database, registry, concurrency=CONCURRENCY).succeeded == 1000
    assert most <= CONCURRENCY
    assert max(_claims(database)) > CONCURRENCY


def test_of_jobs_that_take_long_only_those_are_claimed_for_which_a_slot_is_free(
    database: str, registry: HandlerRegistry
) -> None:
    @registry.handler("long")
    async def long(job: Job) -> None:
        await asyncio.sleep(0.02)

    _enqueue_many(database, ["long"] * 60)
    assert drain(database, registry, concurrency=CONCURRENCY).succeeded == 60
    assert max(_claims(database)) <= CONCURRENCY


def test_jobs_claimed_ahead_that_find_no_slot_go_back_unspent_and_others_take_them(
    database: str, registry: HandlerRegistry
) -> None:
    go_on = threading.Event()

    @registry.handler("short")
    async def short(job: Job) -> None:
        return None

    @registry.handler("long")
    def long(job: Job) -> None:
        assert go_on.wait(60)

    _enqueue_many(database, ["short"] * 1000 + ["long"] * CONCURRENCY + ["short"] * 300)
    with running_worker(database, registry, concurrency=CONCURRENCY):
        wait_for(
            lambda: _count(database, "succeeded") >= 1000 and _count(database, "running") == CONCURRENCY,
            30,
            "the long jobs to run and no others",
        )
        with running_worker(database, registry, concurrency=CONCURRENCY):
            wait_for(lambda: _count(database, "succeeded") == 1300, 30, "another worker to take the rest")
        go_on.set()
        wait_for(lambda: _count(database, "succeeded") == 1300 + CONCURRENCY, 30, "the long jobs to end")
    with psycopg.connect(database) as connection:
        assert violations(connection) == {}
        assert connection.execute("select max(attempt_count) from sched.jobs").fetchone() == (1,)


def test_a_short_backoff_ends_without_the_look(database: str, registry: HandlerRegistry) -> None:
    @registry.handler("twice")
    def twice(job: Job) -> None:
        if job.attempt == 1:
            raise Retry(after=timedelta(milliseconds=200))

    with running_worker(database, registry, poll=NEVER):
        job_id = enqueue(database, "twice")
        row = wait_for_status(database, job_id, "succeeded")
    assert row["attempt_count"] == 2
    assert row["started_at"] >= row["available_at"]


def test_a_job_for_a_moment_before_the_next_look_starts_then(database: str, registry: HandlerRegistry) -> None:
    @registry.handler("quick")
    def quick(job: Job) -> None:
        return None

    with running_worker(database, registry, poll=NEVER), psycopg.connect(database, autocommit=True) as connection:
        wait_for(
            lambda: connection.execute("select from sched.workers where has_free_slots").rowcount, 10, "an idle worker"
        )
        one = connection.execute(
            "select id from sched.enqueue('quick', p_run_at => clock_timestamp() + interval '300 ms')"
        ).fetchone()
        assert one is not None
        wait_for_status(database, one[0], "succeeded")
        many = connection.execute(
            """
            select id from sched.enqueue_many(jsonb_build_array(jsonb_build_object(
              'job_type', 'quick', 'run_at', clock_timestamp() + interval '300 ms')))
            """
        ).fetchone()
        assert many is not None
        wait_for_status(database, many[0], "succeeded")
    assert all(
        row["started_at"] >= row["available_at"] for row in (job_row(database, one[0]), job_row(database, many[0]))
    )


def test_a_full_worker_does_not_turn_in_circles_over_a_job_that_is_due(
    database: str, registry: HandlerRegistry
) -> None:
    go_on = threading.Event()

    @registry.handler("long")
    def long(job: Job) -> None:
        assert go_on.wait(60)

    with running_worker(database, registry, concurrency=1), psycopg.connect(database, autocommit=True) as connection:
        wait_for_status(database, enqueue(database, "long"), "running")
        connection.execute("select sched.enqueue('long', p_run_at => clock_timestamp() + interval '300 ms')")
        wait_for(lambda: _is_due(connection), 10, "the second job to be due")
        used, began = time.process_time(), time.monotonic()
        assert not go_on.wait(2)  # the time that is measured
        share = (time.process_time() - used) / (time.monotonic() - began)
        go_on.set()
        wait_for(lambda: _count(database, "succeeded") == 2, 30, "both jobs to end")
    assert share < 0.5  # a loop without a wait takes nearly all of a core, and every handler's interpreter


def _is_due(connection: psycopg.Connection[Any]) -> bool:
    """Whether a scheduled job has been due for longer than the look of every second takes to see it."""
    return bool(
        connection.execute(
            "select from sched.jobs where status = 'scheduled' and available_at < clock_timestamp() - interval '1.2 s'"
        ).rowcount
    )


def _enqueue_many(dsn: str, job_types: list[str]) -> None:
    jobs = json.dumps([{"job_type": job_type} for job_type in job_types])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select count(*) from sched.enqueue_many(%s::jsonb)", (jobs,))


def _claims(dsn: str) -> list[int]:
    """How many jobs each claim brought, told by the part of the lease token that a claim draws once."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select count(*) from sched.attempts group by left(lease_token::text, 23)").fetchall()
    return [row[0] for row in rows]


def _count(dsn: str, status: str) -> int:
    with psycopg.connect(dsn) as connection:
        row: Any = connection.execute("select count(*) from sched.jobs where status = %s", (status,)).fetchone()
    return int(row[0])

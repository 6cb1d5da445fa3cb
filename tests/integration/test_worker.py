"""A worker end to end against a real database: handlers of every kind, how they end, draining and stopping."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import psycopg
import pytest

from scheduler.errors import StorageError
from scheduler.handlers import Cancel, Discard, HandlerRegistry, Hold, Job, Retry
from scheduler.services.worker import Worker, WorkerSettings
from scheduler.storage.database import Database
from tests.support.wait import wait_for
from tests.support.working import attempts_of, drain, enqueue, job_row, running_worker, wait_for_status


class HalfMadeRetry(Retry):
    """Somebody's own class that does not call its base."""

    def __init__(self) -> None:
        pass


@pytest.fixture
def registry() -> HandlerRegistry:
    return HandlerRegistry()


def test_a_plain_and_an_async_handler_return_the_results_of_their_jobs(
    database: str, registry: HandlerRegistry
) -> None:
    @registry.handler("plain")
    def plain(job: Job) -> dict[str, int]:
        return {"doubled": job.payload["n"] * 2}

    @registry.handler("async")
    async def asynchronous(job: Job) -> list[str]:
        await asyncio.sleep(0)
        return ["é", job.job_type]

    first, second = enqueue(database, "plain", {"n": 21}), enqueue(database, "async")
    result = drain(database, registry)
    assert (result.claimed, result.succeeded) == (2, 2)
    assert job_row(database, first)["result"] == {"doubled": 42}
    assert job_row(database, second)["result"] == ["é", "async"]
    assert [attempt["outcome"] for attempt in attempts_of(database, first)] == ["succeeded"]


def test_a_handler_sees_what_the_row_says_and_its_metadata_is_kept_with_the_attempt(
    database: str, registry: HandlerRegistry
) -> None:
    seen: list[Job] = []

    @registry.handler("look")
    def look(job: Job) -> None:
        seen.append(job)
        job.metadata["model"] = "small"

    job_id = enqueue(database, "look", {"a": 1}, idempotency_key="k:1", max_attempts=3)
    drain(database, registry)
    (job,) = seen
    assert (job.id, job.payload, job.idempotency_key, job.attempt, job.max_attempts) == (job_id, {"a": 1}, "k:1", 1, 3)
    assert job.logical_date is None and job.schedule is None and not job.cancelled
    assert attempts_of(database, job_id)[0]["metadata"] == {"model": "small"}


def test_a_result_is_kept_once_per_idempotency_key(database: str, registry: HandlerRegistry) -> None:
    @registry.handler("keyed")
    def keyed(job: Job) -> str:
        return "made"

    job_id = enqueue(database, "keyed", idempotency_key="k:1")
    drain(database, registry)
    with psycopg.connect(database) as connection:
        rows = connection.execute("select key, result, produced_by, attempt from sched.job_results").fetchall()
    assert rows == [("k:1", "made", job_id, 1)]


@pytest.mark.parametrize(
    ("error", "status", "outcome", "text"),
    [
        (ValueError("broken"), "scheduled", "failed", "ValueError: broken"),
        (Retry("later", after=timedelta(hours=2)), "scheduled", "retried", "later"),
        (Discard("never"), "dead", "discarded", "never"),
        (Hold("look at it"), "held", "held", "look at it"),
        (Cancel("not wanted"), "cancelled", "cancelled", "not wanted"),
        (SystemExit(3), "scheduled", "failed", "SystemExit: 3"),
        (KeyboardInterrupt(), "scheduled", "failed", "KeyboardInterrupt"),
        (HalfMadeRetry(), "scheduled", "failed", "AttributeError: 'HalfMadeRetry' object has no attribute 'after'"),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_what_a_handler_raises_decides_what_becomes_of_the_job(
    database: str, registry: HandlerRegistry, kind: str, error: BaseException, status: str, outcome: str, text: str
) -> None:
    @registry.handler("plain")
    def plain(job: Job) -> None:
        raise error

    @registry.handler("async")
    async def asynchronous(job: Job) -> None:
        raise error

    job_id = enqueue(database, kind)
    drain(database, registry)
    row = job_row(database, job_id)
    (attempt,) = attempts_of(database, job_id)
    assert (row["status"], attempt["outcome"]) == (status, outcome)
    assert attempt["error"].startswith(text) and row["last_error"] == attempt["error"]
    if outcome == "retried":
        assert row["available_at"] - attempt["ended_at"] == pytest.approx(timedelta(hours=2), abs=timedelta(minutes=1))


def test_the_last_attempt_that_fails_leaves_the_job_dead(database: str, registry: HandlerRegistry) -> None:
    @registry.handler("bad")
    def bad(job: Job) -> None:
        raise RuntimeError

    job_id = enqueue(database, "bad", max_attempts=2, retry_base=timedelta(0))
    drain(database, registry)
    wait_for(lambda: drain(database, registry) and job_row(database, job_id)["status"] == "dead", 10, "a dead job")
    assert [attempt["number"] for attempt in attempts_of(database, job_id)] == [1, 2]


def test_a_job_of_unknown_type_fails_and_says_how_to_start_the_worker(database: str, registry: HandlerRegistry) -> None:
    job_id = enqueue(database, "nobody.knows")
    drain(database, registry)
    row = job_row(database, job_id)
    assert row["status"] == "scheduled"
    assert row["last_error"].startswith('no handler is registered for "nobody.knows"') and "--app" in row["last_error"]


@pytest.mark.parametrize("value", [float("nan"), {"a": "x\0y"}, ["\ud800"], {1: 2}, object(), {"deep": [{"k": b"x"}]}])
def test_a_result_that_cannot_be_stored_is_a_failed_attempt(
    database: str, registry: HandlerRegistry, value: object
) -> None:
    @registry.handler("odd")
    def odd(job: Job) -> object:
        return value

    job_id = enqueue(database, "odd")
    drain(database, registry)
    assert job_row(database, job_id)["last_error"].startswith("the handler's result cannot be stored: result")


def test_an_error_text_with_nul_surrogates_and_secrets_is_stored_cleaned(
    database: str, registry: HandlerRegistry
) -> None:
    @registry.handler("bad")
    def bad(job: Job) -> None:
        job.metadata["x"] = "\0"
        raise ValueError("a\0b \ud800 postgresql://u:secret@h/db\nDETAIL:  Key (mail)=(someone) exists.\nHINT: no")

    job_id = enqueue(database, "bad")
    drain(database, registry)
    text = job_row(database, job_id)["last_error"]
    assert text.startswith("ValueError: a\N{REPLACEMENT CHARACTER}b ? postgresql://...")
    assert "secret" not in text.split("File")[0] and "someone" not in text.split("File")[0]
    assert "NUL" in attempts_of(database, job_id)[0]["metadata"]["error"]


def test_an_async_handler_that_overruns_is_ended(database: str, registry: HandlerRegistry) -> None:
    cleaned = threading.Event()

    @registry.handler("slow")
    async def slow(job: Job) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    job_id = enqueue(database, "slow", timeout=timedelta(milliseconds=50))
    drain(database, registry)
    assert attempts_of(database, job_id)[0]["outcome"] == "timed_out"
    assert cleaned.is_set()


def test_a_time_out_of_the_handler_itself_is_a_failure(database: str, registry: HandlerRegistry) -> None:
    @registry.handler("own")
    async def own(job: Job) -> None:
        raise TimeoutError("mine")

    job_id = enqueue(database, "own", timeout=timedelta(seconds=60))
    drain(database, registry)
    assert attempts_of(database, job_id)[0]["outcome"] == "failed"


def test_a_thread_that_overruns_is_timed_out_and_keeps_its_slot_until_it_returns(
    database: str, registry: HandlerRegistry
) -> None:
    release = threading.Event()

    @registry.handler("stuck")
    def stuck(job: Job) -> None:
        assert release.wait(30) and job.cancelled

    @registry.handler("quick")
    def quick(job: Job) -> None:
        return None

    with running_worker(database, registry, concurrency=1):
        first = enqueue(database, "stuck", timeout=timedelta(milliseconds=100))
        assert wait_for_status(database, first, "scheduled")["last_error"].startswith("timed out after")
        second = enqueue(database, "quick")
        assert job_row(database, second)["status"] == "pending"
        release.set()
        wait_for_status(database, second, "succeeded")
    assert [attempt["outcome"] for attempt in attempts_of(database, first)] == ["timed_out"]


def test_an_idle_worker_is_woken_by_an_enqueue(database: str, registry: HandlerRegistry) -> None:
    @registry.handler("quick")
    def quick(job: Job) -> None:
        return None

    with running_worker(database, registry, poll=timedelta(minutes=1)):
        wait_for(lambda: _wants_hints(database), 10, "the worker to want hints")
        for _ in range(3):
            wait_for_status(database, enqueue(database, "quick"), "succeeded")


def test_a_worker_takes_jobs_of_its_queues_only_and_smaller_priority_numbers_first(
    database: str, registry: HandlerRegistry
) -> None:
    order: list[int] = []

    @registry.handler("note")
    def note(job: Job) -> None:
        order.append(job.payload["n"])

    for n, priority in ((1, 200), (2, 50), (3, 100)):
        enqueue(database, "note", {"n": n}, priority=priority)
    other = enqueue(database, "note", {"n": 4}, queue="other")
    drain(database, registry, concurrency=1)
    assert order == [2, 3, 1]
    assert job_row(database, other)["status"] == "pending"


def test_draining_waits_for_jobs_that_jobs_enqueue_but_not_for_a_backoff(
    database: str, registry: HandlerRegistry
) -> None:
    @registry.handler("chain")
    def chain(job: Job) -> None:
        if job.payload["left"]:
            enqueue(database, "chain", {"left": job.payload["left"] - 1})

    @registry.handler("bad")
    def bad(job: Job) -> None:
        raise RuntimeError

    enqueue(database, "chain", {"left": 3})
    enqueue(database, "bad")
    result = drain(database, registry)
    assert (result.succeeded, result.failed) == (4, 1)


def test_a_stop_lets_running_jobs_finish_and_claims_no_more(database: str, registry: HandlerRegistry) -> None:
    started, release = threading.Event(), threading.Event()

    @registry.handler("wait")
    def wait(job: Job) -> str:
        started.set()
        assert release.wait(30)
        return "finished"

    with running_worker(database, registry, concurrency=1) as running:
        first, second = enqueue(database, "wait"), enqueue(database, "wait")
        assert started.wait(10)
        running.stop.set()
        release.set()
        result = running.join()
    assert (result.claimed, result.succeeded, result.handed_back) == (1, 1, 0)
    assert job_row(database, first)["result"] == "finished"
    assert job_row(database, second)["status"] == "pending"


@pytest.mark.parametrize("kind", ["plain", "async", "shell"])
def test_jobs_that_outlast_the_grace_are_handed_back_without_spending_the_attempt(
    database: str, registry: HandlerRegistry, kind: str
) -> None:
    release = threading.Event()

    @registry.handler("plain")
    def plain(job: Job) -> None:
        release.wait(30)

    @registry.handler("async")
    async def asynchronous(job: Job) -> None:
        await asyncio.sleep(30)

    job_id = enqueue(database, "run.shell", run={"shell": "sleep 30"}) if kind == "shell" else enqueue(database, kind)
    with running_worker(database, registry, shutdown_grace=timedelta(0)) as running:
        wait_for_status(database, job_id, "running")
        running.stop.set()
        result = running.join()
    release.set()
    row = job_row(database, job_id)
    assert (row["status"], row["attempt_count"], result.handed_back) == ("pending", 0, 1)
    assert attempts_of(database, job_id) == []


def test_a_second_signal_cuts_the_grace_short(database: str, registry: HandlerRegistry) -> None:
    release = threading.Event()

    @registry.handler("wait")
    def wait(job: Job) -> None:
        release.wait(30)

    with running_worker(database, registry, shutdown_grace=timedelta(minutes=10)) as running:
        job_id = enqueue(database, "wait")
        wait_for_status(database, job_id, "running")
        running.stop.set()
        running.abort.set()
        assert running.join().handed_back == 1
    release.set()


def test_a_worker_is_known_while_it_runs(database: str, registry: HandlerRegistry) -> None:
    def known() -> list[tuple[str, list[str], int]]:
        with psycopg.connect(database) as connection:
            return connection.execute(
                "select name, queues, concurrency from sched.workers where stopped_at is null"
            ).fetchall()

    with running_worker(database, registry, queues=("a", "b"), concurrency=3):
        assert wait_for(known, 10, "a row") == [("test", ["a", "b"], 3)]
    assert known() == []


def test_an_unmigrated_database_is_refused_with_a_sentence(empty_database: str, registry: HandlerRegistry) -> None:
    with pytest.raises(StorageError, match="sched migrate"):
        Worker(Database(empty_database), registry, WorkerSettings()).run(threading.Event())


def _wants_hints(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        return connection.execute("select from sched.workers where has_free_slots").fetchone() is not None

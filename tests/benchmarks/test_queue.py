"""How fast one worker process is, beside the raw limit: the least that SQL has to do for the same rows.

The server is one of its own, as PostgreSQL ships it, so with fsync on. What is compared takes turns, and medians are
printed (``-s``). SCHED_BENCH_JOBS sets the size. Short by default, so that CI keeps this working;
ratios are then dominated by starting up and are not judged, and figures in milliseconds are never: they are printed
beside their limits.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import psycopg
import pytest

from scheduler.handlers import HandlerRegistry, Job
from scheduler.storage.migrations import migrate
from tests.support.cluster import Cluster, available_servers
from tests.support.database import connect
from tests.support.require import pgbench, require
from tests.support.wait import wait_for
from tests.support.working import drain, running_worker

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

JOBS = int(os.environ.get("SCHED_BENCH_JOBS", "5000"))
IS_JUDGED = JOBS >= 50_000
ROUNDS = 5
BATCH = 500
FINISHED = 5 * JOBS
LATENCIES = 200 if IS_JUDGED else 40
IDLE_SECONDS = 10.0 if IS_JUDGED else 2.0
MARKS = (JOBS // 5, JOBS * 3 // 5, JOBS)
RAW = Path(__file__).with_name("raw_limit.sql")
WIDE = {"concurrency": 2 * BATCH, "batch": BATCH}
NARROW = {"concurrency": 10, "batch": BATCH}


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server as PostgreSQL ships it, with the schema in its first database."""
    with Cluster.start(next(iter(available_servers().values())).bin_dir) as cluster:
        with connect(cluster.dsn()) as connection:
            migrate(connection)
        yield cluster


@pytest.fixture
def dsn(server: Cluster) -> str:
    return server.dsn()


@pytest.fixture
def registry() -> HandlerRegistry:
    return no_op_handlers()


def no_op_handlers() -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.handler("async")
    async def asynchronous(job: Job) -> None:
        return None

    @registry.handler("plain")
    def plain(job: Job) -> None:
        return None

    return registry


def test_draining_no_op_jobs_reaches_half_of_the_raw_limit(dsn: str, registry: HandlerRegistry) -> None:
    require("pgbench")
    rates = _rates_in_turn(
        dsn,
        {
            "raw": lambda: _drain_raw(dsn),
            "async": lambda: _drain(dsn, registry, **WIDE),
            "plain": lambda: _drain(dsn, registry, **WIDE),
            "async, 10 slots": lambda: _drain(dsn, registry, **NARROW),
        },
    )
    raw = rates["raw"]
    print(f"\ndraining {JOBS:,} no-op jobs in batches of {BATCH}, jobs/s (async: at least half of raw)")
    for kind, rate in rates.items():
        print(f"  {kind:16} {rate:9,.0f}  {rate / raw:6.0%}")
    if IS_JUDGED:
        assert rates["async"] >= raw / 2


def test_finished_jobs_beneath_do_not_slow_a_worker(dsn: str, registry: HandlerRegistry) -> None:
    rates: dict[int, list[float]] = {0: [], FINISHED: []}
    for _ in range(ROUNDS):
        for finished, measured in rates.items():
            _refill(dsn, "async", finished)
            measured.append(JOBS / _drain(dsn, registry, **WIDE))
    bare, above = (statistics.median(measured) for measured in rates.values())
    print(
        f"\n{above / bare:.0%} of the rate over {FINISHED:,} finished jobs (at least 90%): {bare:,.0f}, {above:,.0f}/s"
    )
    if IS_JUDGED:
        assert above >= 0.9 * bare


def test_the_memory_of_a_worker_does_not_grow_with_the_jobs_it_did(dsn: str) -> None:
    _refill(dsn, "counted")
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=drain_and_weigh, args=(dsn, theirs))
    process.start()
    theirs.close()
    weights: list[float] = [ours.recv() for _ in MARKS]
    process.join()
    print(
        "\nmemory after " + ", ".join(f"{mark:,}: {mb:.1f} MB" for mark, mb in zip(MARKS, weights, strict=True)), end=""
    )
    print(f" (growth at most 5%: {weights[-1] / weights[0] - 1:+.1%})")
    if IS_JUDGED:
        assert weights[-1] <= 1.05 * weights[0]


def test_an_idle_worker_sends_one_statement_a_second(server: Cluster, registry: HandlerRegistry) -> None:
    _refill(server.dsn(), "async")
    drain(server.dsn(), registry)
    with (
        running_worker(server.dsn(), registry, poll=timedelta(seconds=1)),
        connect(server.dsn("template1")) as outside,
    ):
        _wait_until_idle(server.dsn())
        rates = []
        for _ in range(ROUNDS):
            before, began = _transactions(outside), time.monotonic()
            time.sleep(IDLE_SECONDS)  # a rate needs time to pass
            rates.append((_transactions(outside) - before) / (time.monotonic() - began))
    # The server counts the transactions of its autovacuum too; the best of some windows has none.
    print(f"\nidle: {min(rates):.2f} transactions/s (at most 1, and the server counts late)")
    assert min(rates) <= 1.0 + 1.5 / IDLE_SECONDS


def test_an_idle_worker_picks_a_job_up_within_milliseconds(dsn: str, registry: HandlerRegistry) -> None:
    started: list[float] = []

    @registry.handler("note")
    def note(job: Job) -> None:
        started.append(time.perf_counter())

    latencies = []
    with (
        running_worker(dsn, registry, poll=timedelta(seconds=1)),
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        _wait_until_idle(dsn)
        for count in range(1, LATENCIES + 1):
            connection.execute("select sched.enqueue('note')")
            sent = time.perf_counter()
            while len(started) < count:
                time.sleep(0.0002)
            latencies.append(1000 * (started[-1] - sent))
            while connection.execute("select from sched.jobs where status = 'running'").fetchone() is not None:
                pass
    latencies.sort()
    p50, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    print(f"\npickup by an idle worker: p50 {p50:.1f} ms (at most 3), p99 {p99:.1f} ms (at most 20)")


def drain_and_weigh(dsn: str, answers: Pipe) -> None:
    """Do all jobs in this process, and send its memory in MB whenever one of ``MARKS`` jobs are done."""
    registry, done = HandlerRegistry(), 0

    @registry.handler("counted")
    async def counted(job: Job) -> None:
        nonlocal done
        done += 1
        if done in MARKS:
            answers.send(_resident_mb())

    drain(dsn, registry, **WIDE)


def _rates_in_turn(dsn: str, kinds: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Jobs per second of each way to drain the queue, which returns the seconds it took; medians of some rounds."""
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind, seconds in kinds.items():
            _refill(dsn, "plain" if kind == "plain" else "async")
            rates[kind].append(JOBS / seconds())
    return {kind: statistics.median(measured) for kind, measured in rates.items()}


def _drain(dsn: str, registry: HandlerRegistry, *, concurrency: int, batch: int) -> float:
    """Seconds from the start of a worker, its connections included, to its end."""
    began = time.perf_counter()
    assert drain(dsn, registry, concurrency=concurrency, batch=batch).succeeded == JOBS
    return time.perf_counter() - began


def _drain_raw(dsn: str) -> float:
    """Seconds that pgbench takes, without its connecting."""
    assert JOBS % BATCH == 0, "pgbench repeats whole batches"
    program = pgbench()
    assert program is not None
    command = [program, "--no-vacuum", "--file", str(RAW), "--transactions", str(JOBS // BATCH), dsn]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (batches,) = re.findall(r"^tps = ([0-9.]+) \(without initial", done.stdout, re.MULTILINE)
    with connect(dsn) as connection:
        left = connection.execute("select count(*) from sched.jobs where status <> 'succeeded'").fetchone()
    assert left == (0,), done.stderr
    return JOBS / BATCH / float(batches)


def _refill(dsn: str, job_type: str, finished: int = 0) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("truncate sched.jobs, sched.attempts, sched.job_results")
        connection.execute(
            """
            insert into sched.jobs (job_type, status, completed_at)
            select 'old', 'succeeded', clock_timestamp() from generate_series(1, %s)
            """,
            (finished,),
        )
        connection.execute(
            "insert into sched.jobs (job_type, status) select %s, 'pending' from generate_series(1, %s)",
            (job_type, JOBS),
        )
        connection.execute("vacuum (analyze) sched.jobs")
        connection.execute("checkpoint")


def _wait_until_idle(dsn: str) -> None:
    with connect(dsn) as connection:
        wait_for(
            lambda: connection.execute("select from sched.workers where has_free_slots").rowcount, 10, "an idle worker"
        )


def _transactions(outside: psycopg.Connection[tuple[int]]) -> int:
    row = outside.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = 'postgres'"
    ).fetchone()
    assert row is not None
    return row[0]


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

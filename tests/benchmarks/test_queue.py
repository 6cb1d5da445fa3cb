"""How fast one worker process is, beside the raw limit of the same functions, tables and server.

Figures are printed (``-s``); SCHED_BENCH_JOBS sets their size. Short by default, so that CI keeps this working; the
ratio is then dominated by starting up and is not judged.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from datetime import timedelta

import psycopg
import pytest

from scheduler.handlers import HandlerRegistry, Job
from tests.support.working import drain, running_worker

pytestmark = pytest.mark.benchmark

JOBS = int(os.environ.get("SCHED_BENCH_JOBS", "5000"))
FINISHED = 5 * JOBS
JUDGED_FROM = 50_000
BATCH = 500
LATENCIES = 200 if JOBS >= JUDGED_FROM else 40

RAW = """
create or replace procedure public.drain(p_batch integer) language plpgsql as $$
declare
  v_ids bigint[];
  v_tokens uuid[];
begin
  loop
    perform set_config('synchronous_commit', 'off', true);
    select array_agg(c.id order by c.id), array_agg(c.lease_token order by c.id) into v_ids, v_tokens
    from sched.claim('{default}', '00000000-0000-0000-0000-000000000001', p_batch, '15 seconds') c;
    commit;
    exit when v_ids is null;
    perform sched.complete(v_ids, v_tokens, null);
    commit;
  end loop;
end
$$
"""


@pytest.fixture
def registry() -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.handler("async")
    async def asynchronous(job: Job) -> None:
        return None

    @registry.handler("plain")
    def plain(job: Job) -> None:
        return None

    return registry


@pytest.mark.timeout(900)
def test_draining_no_op_jobs_reaches_half_of_the_raw_limit(database: str, registry: HandlerRegistry) -> None:
    rates: dict[str, list[float]] = {"raw": [], "async": [], "plain": []}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(RAW)
    for _ in range(3):
        for kind, measured in rates.items():
            _refill(database, "async" if kind == "raw" else kind)
            began = time.perf_counter()
            if kind == "raw":
                _drain_raw(database)
            else:
                assert drain(database, registry, concurrency=2 * BATCH, batch=BATCH).succeeded == JOBS
            measured.append(JOBS / (time.perf_counter() - began))
    raw, asynchronous, plain = (statistics.median(measured) for measured in rates.values())
    print(
        f"\n{JOBS:,} no-op jobs, jobs/s: raw {raw:,.0f}, async {asynchronous:,.0f} ({asynchronous / raw:.0%}), ", end=""
    )
    print(f"threads {plain:,.0f} ({plain / raw:.0%}); peak memory {_memory():.0f} MB")
    if JOBS >= JUDGED_FROM:
        assert asynchronous >= raw / 2


@pytest.mark.timeout(900)
def test_finished_jobs_beneath_do_not_slow_a_worker(database: str, registry: HandlerRegistry) -> None:
    rates = []
    for finished in (0, FINISHED):
        _refill(database, "async", finished)
        began = time.perf_counter()
        drain(database, registry, concurrency=2 * BATCH, batch=BATCH)
        rates.append(JOBS / (time.perf_counter() - began))
    print(f"\njobs/s: {rates[0]:,.0f} bare, {rates[1]:,.0f} over {FINISHED:,} finished")


def test_an_idle_worker_picks_a_job_up_within_milliseconds(database: str, registry: HandlerRegistry) -> None:
    started: list[float] = []

    @registry.handler("note")
    def note(job: Job) -> None:
        started.append(time.perf_counter())

    latencies = []
    with (
        running_worker(database, registry, poll=timedelta(seconds=1)),
        psycopg.connect(database, autocommit=True) as connection,
    ):
        while connection.execute("select from sched.workers where has_free_slots").fetchone() is None:
            pass
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
    print(f"\npickup by an idle worker: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


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


def _drain_raw(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("call public.drain(%s)", (BATCH,))


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

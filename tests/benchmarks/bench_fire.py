"""How fast dates are fired, filled and found idle, beside a bare ``INSERT … SELECT`` of the same rows in the same run.

``python -m tests.benchmarks.bench_fire [--short]`` prints a table. Ratios are what counts; absolute times depend on the
machine.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from scheduler.storage.database import Connection
from tests.support.build import NOON, fire
from tests.support.cli import write_definitions
from tests.support.cluster import Cluster, available_servers
from tests.support.database import Servers, cloned_database, connect
from tests.support.fleet import fleet
from tests.support.wait import wait_for

MINUTE = timedelta(minutes=1)


def add_schedules(db: Connection, count: int, overlap: str) -> None:
    """So many schedules with one revision each."""
    db.execute(
        """
        insert into sched.schedules (name, owner, revision, applied_at, planned_until, plan_at)
        select 's' || i, 't', 1, %(at)s - interval '1 day', '9999-01-01', '9999-01-01' from generate_series(1, %(n)s) i
        """,
        {"at": NOON, "n": count},
    )
    db.execute(
        """
        insert into sched.schedule_revisions (
          schedule_id, revision, valid_from, hash, definition, file, applied_by, job_type, payload, key_template, queue,
          priority, max_attempts, retry_base, retry_max, retry_jitter, catchup, grace, max_age, overlap,
          on_final_failure)
        select id, 1, %(at)s, '', '{}', 'f', 't', 'x', '{"a": 1}', '{schedule}:{logical_date}', 'default', 100, 5,
               '10 s', '1 hour', 0.2, 'latest', '2 minutes', '7 days', %(overlap)s, 'continue' from sched.schedules
        """,
        {"at": NOON, "overlap": overlap},
    )
    db.execute("insert into sched.limits (key, slots) select sched.overlap_key(id), 1 from sched.schedules")


def plan_all(db: Connection, at: object, schedules: int | None = None) -> None:
    """One planned date of every schedule."""
    db.execute(
        """
        insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date, wall)
        select id, 1, %(at)s, %(at)s, %(at)s - interval '1 minute', %(at)s::date, %(at)s::timestamp
        from sched.schedules order by id limit %(n)s
        """,
        {"at": at, "n": schedules},
    )
    db.execute("vacuum analyze sched.occurrences")
    db.execute("analyze sched.jobs")


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fire_all(db: Connection, at: object) -> None:
    """Passes until nothing is due."""
    while fire(db, at)[4]:  # type: ignore[arg-type]
        pass


def bare_insert(db: Connection, at: object) -> float:
    """Seconds for the same job rows into a table with the same columns, constraints and indexes."""
    db.execute("drop table if exists bare")
    db.execute("create table bare (like sched.jobs including all)")
    return seconds(
        lambda: db.execute(
            "insert into bare overriding system value select * from sched.jobs where logical_date = %s", (at,)
        )
    )


def bench_due_together(db: Connection, count: int, overlap: str, rounds: int) -> None:
    """Every schedule due in one second."""
    add_schedules(db, count, overlap)
    ratios, ours, bare = [], [], []
    for number in range(rounds):
        at = NOON + number * MINUTE
        db.execute(
            "update sched.jobs set status = 'succeeded', completed_at = clock_timestamp(), waiting_for = null,"
            " holds_overlap = false where status in ('pending', 'waiting')"
        )
        db.execute("vacuum sched.jobs")
        plan_all(db, at)
        ours.append(seconds(lambda at=at: fire_all(db, at)))  # type: ignore[misc]
        bare.append(bare_insert(db, at))
        ratios.append(ours[-1] / bare[-1])
    print(
        f"{count} schedules due in one second, overlap {overlap}: {statistics.median(ours):.3f} s, bare insert "
        f"{statistics.median(bare):.3f} s, ratio {statistics.median(ratios):.2f} (of {rounds} runs)"
    )


def bench_idle(db: Connection, count: int) -> None:
    """A pass with nothing due, beside an empty query."""
    add_schedules(db, count, "queue")
    plan_all(db, NOON + timedelta(hours=1))
    db.execute("vacuum analyze sched.schedules")
    passes = [seconds(lambda: fire(db, NOON)) for _ in range(200)]
    empty = [seconds(lambda: db.execute("select 1").fetchone()) for _ in range(200)]
    print(
        f"idle pass with {count} schedules: median {statistics.median(passes) * 1000:.2f} ms, "
        f"an empty query {statistics.median(empty) * 1000:.2f} ms"
    )


def bench_idle_under_snapshot(db: Connection, other: Connection, schedules: int, dates: int) -> None:
    """A pass with nothing due over fired dates whose dead index entries a foreign snapshot keeps."""
    add_schedules(db, schedules, "allow")
    other.execute("begin isolation level repeatable read")
    other.execute("select count(*) from sched.jobs").fetchone()
    for number in range(dates // schedules):
        plan_all(db, NOON + number * MINUTE)
        fire_all(db, NOON + number * MINUTE)
    plan_all(db, NOON + timedelta(days=1))
    passes = [seconds(lambda: fire(db, NOON + timedelta(hours=12))) for _ in range(20)]
    other.execute("rollback")
    print(
        f"idle pass over {dates} fired dates under a foreign snapshot: median "
        f"{statistics.median(passes) * 1000:.2f} ms, worst {max(passes) * 1000:.2f} ms"
    )


def bench_backfill(db: Connection, dates: int) -> None:
    """Filling that many minutes, computed, compared and written, beside the bare insert of the same jobs."""
    from datetime import UTC, datetime

    from scheduler.core.models import Cron, Definition, DefinitionSet, OverlapPolicy, Timing
    from scheduler.services.apply import apply_definitions
    from scheduler.services.backfill import BackfillRequest, fill_gaps
    from scheduler.services.gaps import GapRequest, find_gaps

    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start = now - dates * MINUTE
    timing = Timing(name="s", rule=Cron(expression="* * * * *"), start=start)
    definition = Definition(name="s", owner="t", timing=timing, job_type="x", overlap=OverlapPolicy.ALLOW)
    apply_definitions(db, DefinitionSet(schedules={"s": definition}, limits={}, owners=frozenset({"t"})), actor="bench")

    def fill() -> None:
        report = find_gaps(db, GapRequest(since=start, until=now))
        fill_gaps(db, report.gaps, 0, BackfillRequest(actor="bench", since="x"))

    def bare_copy(*tables: str) -> float:
        """Seconds for the same rows into tables with the same columns, constraints and indexes."""
        for table in tables:
            db.execute(f"drop table if exists bare_{table}")
            db.execute(f"create table bare_{table} (like sched.{table} including all)")
        db.execute("checkpoint")  # what our pages still cost to write is not the copy's
        insert = "insert into bare_{0} overriding system value select * from sched.{0}"
        return seconds(lambda: [db.execute(insert.format(table)) for table in tables])

    ours = seconds(fill)
    jobs = statistics.median(bare_copy("jobs") for _ in range(3))
    both = statistics.median(bare_copy("jobs", "occurrences") for _ in range(3))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"backfill of {dates} dates: {dates / ours:,.0f}/s; bare insert of the jobs {dates / jobs:,.0f}/s, ratio "
        f"{jobs / ours:.2f}; of jobs and ledger {dates / both:,.0f}/s, ratio {both / ours:.2f}; "
        f"memory of the process {peak:.0f} MB"
    )


def bench_lateness(seconds: int) -> None:
    """From the moment a date names to the commit of its job, with one ``sched tick``: 100 schedules due each second.

    A server of its own, as PostgreSQL ships it (every commit is flushed), that tells when rows were committed.
    """
    bin_dir = next(iter(available_servers().values())).bin_dir
    os.sync()  # what others have still to write is not this server's
    with (
        tempfile.TemporaryDirectory() as name,
        Cluster.start(bin_dir, settings={"track_commit_timestamp": "on"}) as cluster,
        fleet(cluster.dsn(), Path(name)) as running,
    ):
        running.start("migrate", "migrate")
        running.wait("migrate", 60)
        lines = (f"  s{n}: {{every: 1s, job: x, overlap: allow}}" for n in range(100))
        running.start("tick", "tick", "--apply", str(write_definitions(Path(name) / "schedules", "\n".join(lines))))
        with connect(cluster.dsn()) as db:
            wait_for(lambda: late(db)[0] >= 100 * (seconds + 2), seconds + 60, "dates of a minute")
            count, p50, p99, worst = late(db)
    print(
        f"lateness of {count} dates, 100 a second: "
        f"p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms (wanted 25), worst {worst * 1000:.1f} ms"
    )


def late(db: Connection) -> tuple[int, float, float, float]:
    """How many jobs there are after the first two seconds, and seconds of lateness: median, p99 and worst."""
    row = db.execute(
        """
        select count(*), percentile_cont(array[0.5, 0.99, 1]) within group (
          order by extract(epoch from pg_xact_commit_timestamp(xmin) - logical_date))
        from sched.jobs where logical_date > (select min(logical_date) + interval '2 seconds' from sched.jobs)
        """
    ).fetchone()
    assert row is not None
    return (row[0], *(row[1] or (0.0, 0.0, 0.0)))


@contextmanager
def database(servers: Servers) -> Iterator[str]:
    """A migrated database of its own."""
    with cloned_database(servers.get(next(iter(available_servers())))) as dsn:
        yield dsn


def main(arguments: list[str]) -> None:
    """Print all figures; with ``--short`` a hundredth of the work, to see that it runs."""
    scale = 100 if "--short" in arguments else 1
    servers = Servers()
    try:
        for overlap in ("queue", "allow"):
            with database(servers) as dsn, connect(dsn) as db:
                bench_due_together(db, 10_000 // scale, overlap, 5 if scale == 1 else 1)
        with database(servers) as dsn, connect(dsn) as db:
            bench_idle(db, 100_000 // scale)
        with database(servers) as dsn, connect(dsn) as db, connect(dsn) as other:
            bench_idle_under_snapshot(db, other, 10_000 // scale, 300_000 // scale)
        with database(servers) as dsn, connect(dsn) as db:
            bench_backfill(db, 1_000_000 // scale)
        bench_lateness(60 if scale == 1 else 3)
    finally:
        servers.close()


if __name__ == "__main__":
    main(sys.argv[1:])

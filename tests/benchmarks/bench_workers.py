"""Jobs that take 200 ms each, on more and more worker processes, beside the ideal: does a worker ever wait for work?

``python -m tests.benchmarks.bench_workers`` prints a table; the ideal is jobs * seconds / workers. Each worker runs one
job at a time. All along a second connection looks for sessions that are idle in a transaction while a handler runs.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scheduler.storage.database import Connection
from tests.support.cluster import available_servers
from tests.support.database import Servers, cloned_database, connect
from tests.support.fleet import fleet
from tests.support.invariants import violations
from tests.support.wait import wait_for

JOBS = 400
SECONDS = 0.2
WORKERS = (1, 2, 4, 8, 16)
ROUNDS = 3
PATIENCE = 60.0
SAMPLE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run. ``seconds`` go from the enqueue of all jobs to the completion of the last."""

    workers: int
    jobs: int
    seconds: float
    ideal: float
    executions: Counter[int]
    attempts: int
    samples: int
    idle_in_transaction: int

    @property
    def efficiency(self) -> float:
        return self.ideal / self.seconds


class Sampler:
    """Looks again and again, in a thread, for sessions of ours that are idle in a transaction while jobs run."""

    def __init__(self, dsn: str) -> None:
        self.samples = 0
        """Looks at which a job was running."""
        self.found = 0
        """Those of them with a session that was idle in a transaction."""
        self._dsn = dsn
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def close(self) -> None:
        """Stop looking."""
        self._done.set()
        self._thread.join(PATIENCE)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def _run(self) -> None:
        with connect(self._dsn) as db:
            while not self._done.wait(SAMPLE_SECONDS):
                is_at_work, idle = self._look(db)
                self.samples += is_at_work
                self.found += is_at_work and idle > 0

    def _look(self, db: Connection) -> tuple[bool, int]:
        row = db.execute(
            """
            select exists (select from sched.jobs where status = 'running'),
                   count(*) filter (where starts_with(state, 'idle in transaction'))
            from pg_stat_activity
            where datname = current_database() and application_name = 'sched'
            """
        ).fetchone()
        assert row is not None
        return row[0], row[1]


@contextmanager
def sampling(dsn: str) -> Iterator[Sampler]:
    """A sampler that looks during the block."""
    sampler = Sampler(dsn)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.close()


def measure(dsn: str, folder: Path, workers: int, jobs: int, seconds: float) -> Run:
    """Let so many workers, each a process with one slot, drain the jobs of an empty database."""
    log = folder / f"executions-{workers}"
    log.touch()
    with connect(dsn) as db, fleet(dsn, folder) as processes:
        names = [f"worker-{number}" for number in range(workers)]
        for name in names:
            processes.start(name, "worker", "--app", "tests.benchmarks.sleeping_app", "--concurrency", "1")
        idle = "select count(*) from sched.workers where has_free_slots and stopped_at is null"
        wait_for(lambda: _number(db, idle) == workers, PATIENCE, "all workers to be idle")
        with sampling(dsn) as sampler:
            db.execute(
                """
                select sched.enqueue(
                  'bench.sleep', jsonb_build_object('executions', %(log)s::text, 'seconds', %(seconds)s))
                from generate_series(1, %(jobs)s)
                """,
                {"jobs": jobs, "log": str(log), "seconds": seconds},
            )
            began = _number(db, "select extract(epoch from clock_timestamp())")
            unfinished = "select count(*) from sched.jobs where completed_at is null"
            limit = PATIENCE + jobs * seconds / workers
            wait_for(lambda: not _number(db, unfinished), limit, "all jobs to be done", every=0.1)
        processes.stop(*names)
        assert violations(db) == {}
        return Run(
            workers=workers,
            jobs=jobs,
            seconds=_number(db, "select extract(epoch from max(completed_at)) from sched.jobs") - began,
            ideal=jobs * seconds / workers,
            executions=Counter(map(int, log.read_text().split())),
            attempts=int(_number(db, "select count(*) from sched.attempts where number = 1 and outcome = 'succeeded'")),
            samples=sampler.samples,
            idle_in_transaction=sampler.found,
        )


def faults(run: Run) -> list[str]:
    """What must not be, whatever the machine does."""
    found = []
    if len(run.executions) != run.jobs or run.executions.total() != run.jobs or run.attempts != run.jobs:
        found.append(f"{run.executions.total()} executions of {len(run.executions)} jobs, {run.attempts} attempts")
    if run.idle_in_transaction:
        found.append(f"idle in a transaction in {run.idle_in_transaction} of {run.samples} looks")
    return found


def _number(db: Connection, query: str) -> float:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return float(row[0])


def line(runs: list[Run], wrong: list[str]) -> str:
    """The line of the table for these rounds."""
    efficiencies = [run.efficiency for run in runs]
    return (
        f"{runs[0].workers:>7} {runs[0].ideal:>8.2f} {statistics.median(run.seconds for run in runs):>8.2f}"
        f" {statistics.median(efficiencies):>8.1%} {max(efficiencies):>7.1%}"
        f" {sum(run.executions.total() for run in runs):>10} {sum(run.samples for run in runs):>7}"
        f"  {'; '.join(wrong) or 'none'}"
    )


def main() -> int:
    """Print the table; 1 when a job ran twice or never, or a session was idle in a transaction."""
    servers = Servers()
    is_kept = True
    print(
        f"{JOBS} jobs of {SECONDS * 1000:g} ms; with {WORKERS[-1]} workers the median of {ROUNDS} rounds, and the best"
    )
    print("workers  ideal s   took s of ideal    best executions   looks  faults")
    try:
        cluster = servers.get(next(iter(available_servers())))
        for workers in WORKERS:
            runs = []
            for _ in range(ROUNDS if workers == WORKERS[-1] else 1):
                with cloned_database(cluster) as dsn, tempfile.TemporaryDirectory(prefix="sched-bench-") as folder:
                    runs.append(measure(dsn, Path(folder), workers, JOBS, SECONDS))
            wrong = [fault for run in runs for fault in faults(run)]
            is_kept &= not wrong
            print(line(runs, wrong), flush=True)
    finally:
        servers.close()
    print(f"load of the machine in the last five minutes: {os.getloadavg()[1]:.1f}")
    return 0 if is_kept else 1


if __name__ == "__main__":
    raise SystemExit(main())

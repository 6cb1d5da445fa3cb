"""Experiment: what an open transaction costs while a job runs, against short ones, for short and long jobs.

A sampler looks at the workers' sessions in ``pg_stat_activity``. A bystander updates a table of one row all the time,
and vacuum runs over it again and again: it cannot remove versions of that row that died after the oldest transaction
began.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from scheduler.lab.claim import empty_queue
from scheduler.lab.crew import beside, crew
from scheduler.lab.findings import Finding, Line, LineChart, Table
from scheduler.lab.schema import LabDatabase
from scheduler.lab.settings import LabSettings
from scheduler.lab.statements import rows, run, value
from scheduler.lab.strategies import Held, Product, Strategy
from scheduler.storage.database import Connection

SAMPLE_SECONDS = 0.05
CHANGE_SECONDS = 0.002
"""How long the bystander pauses between two changes."""
VACUUM_SECONDS = 0.25
"""How long after a vacuum the next one begins."""


@dataclass(slots=True)
class Samples:
    """What was seen of the workers' sessions, one entry a sample; times in seconds."""

    at: list[float] = field(default_factory=list)
    idle_in_transaction: list[int] = field(default_factory=list)
    oldest_seconds: list[float] = field(default_factory=list)
    oldest_transactions: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case: a strategy with jobs of one length, and what became of the bystander's table."""

    strategy: str
    job_seconds: float
    samples: Samples
    changes: int
    dead: list[int]
    """Row versions that each vacuum had to leave."""


def measure_held(database: LabDatabase, settings: LabSettings, say: Callable[[str], None]) -> Finding:
    """Both strategies with jobs of each length, for the same time each."""
    measured = []
    for seconds in settings.held_job_seconds:
        for kind in (Held, Product):
            say(f"held: {kind.name}, jobs of {seconds:g} s")
            measured.append(measure_case(database, kind(settings.held_workers), seconds, settings))
    return _finding(measured, settings)


def measure_case(database: LabDatabase, strategy: Strategy, job_seconds: float, settings: LabSettings) -> Measured:
    """Let workers run jobs one after the other for a while, and watch their sessions."""
    queue = f"held, {strategy.name}, {job_seconds:g}"
    jobs = int(settings.held_workers * settings.held_window_seconds / job_seconds) + 2 * settings.held_workers
    pids: set[int] = set()
    samples, dead = Samples(), list[int]()
    stop = threading.Event()

    def work(connection: Connection) -> None:
        pids.add(connection.info.backend_pid)
        empty_queue(connection, strategy, queue, job_seconds, stop)

    with (
        database.connection() as looking,
        database.connection() as changing,
        database.connection() as vacuuming,
    ):
        strategy.fill(looking, queue, jobs)
        run(looking, "bystander_reset")
        timer = threading.Timer(settings.held_window_seconds, stop.set)
        timer.start()
        try:
            with (
                beside(lambda done: _sample(looking, pids, samples, done)),
                beside(lambda done: _change(changing, done)),
                beside(lambda done: _vacuum(vacuuming, dead, done)),
            ):
                crew(database, strategy.workers, work, stop, autocommit=strategy.autocommit)
        finally:
            timer.cancel()
        changes = value(looking, "bystander_changes")
    return Measured(strategy=strategy.name, job_seconds=job_seconds, samples=samples, changes=changes, dead=dead)


def _sample(connection: Connection, pids: set[int], samples: Samples, done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(SAMPLE_SECONDS):
        ((idle, seconds, transactions),) = rows(connection, "sessions_look", pids=list(pids))
        samples.at.append(time.monotonic() - began)
        samples.idle_in_transaction.append(idle)
        samples.oldest_seconds.append(seconds)
        samples.oldest_transactions.append(transactions)


def _change(connection: Connection, done: threading.Event) -> None:
    while not done.wait(CHANGE_SECONDS):
        run(connection, "bystander_change")


def _vacuum(connection: Connection, dead: list[int], done: threading.Event) -> None:
    while not done.wait(VACUUM_SECONDS):
        run(connection, "bystander_vacuum")
        dead.append(value(connection, "bystander_dead"))


def _finding(measured: list[Measured], settings: LabSettings) -> Finding:
    return Finding(
        name="held",
        title="A transaction held open, against short ones",
        setup=f"{settings.held_workers} workers run jobs for {settings.held_window_seconds:g} s. A second connection "
        f"looks at their sessions every {SAMPLE_SECONDS * 1000:g} ms. Age is that of the oldest transaction among the "
        "workers: in seconds, and in transactions begun since. A bystander updates a table of one row all the time, "
        f"and every {VACUUM_SECONDS * 1000:g} ms a vacuum of that table counts the dead versions that it has to leave.",
        conclusion="An open transaction is as old as the job is long, and no row version that died since can be "
        "removed, in any table of the database: vacuum leaves the more of them, the longer jobs are. A pooler loses "
        "a connection to each job, and a worker that dies leaves no trace of the attempt. With short transactions no "
        "session is ever idle in transaction, however long jobs are. The design keeps ownership in columns, as a "
        "lease, and no transaction is open while a handler runs.",
        tables=[_table(measured)],
        charts=[_chart(measured)],
    )


def _table(measured: list[Measured]) -> Table:
    columns = (
        "strategy", "job, s", "samples", "with a session idle in transaction, %", "most such sessions",
        "oldest transaction p50, s", "largest, s", "largest, transactions", "changes by the bystander",
        "dead versions left by vacuum p50", "most",
    )  # fmt: skip
    return Table(
        title="Sessions of the workers",
        columns=columns,
        rows=[
            (
                case.strategy,
                case.job_seconds,
                len(case.samples.at),
                round(100 * sum(map(bool, case.samples.idle_in_transaction)) / len(case.samples.at), 1),
                max(case.samples.idle_in_transaction),
                round(median(case.samples.oldest_seconds), 3),
                round(max(case.samples.oldest_seconds), 3),
                max(case.samples.oldest_transactions),
                case.changes,
                round(median(case.dead)),
                max(case.dead),
            )
            for case in measured
        ],
    )


def _chart(measured: list[Measured]) -> LineChart:
    return LineChart(
        name="held-age",
        title="Age of the oldest transaction among the workers",
        x="seconds",
        y="age, s",
        lines=[
            Line(
                name=f"{case.strategy}, jobs of {case.job_seconds:g} s",
                points=list(zip(case.samples.at, case.samples.oldest_seconds, strict=True)),
            )
            for case in measured
        ],
    )

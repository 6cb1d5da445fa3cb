"""Experiment: the same jobs, taken in different ways by more and more workers.

A worker is a thread with a connection of its own; a job is a sleep. Every execution is noted by the worker that made
it, so that what happened does not depend on what a strategy wrote into its table.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from scheduler.lab.crew import crew, side_by_side
from scheduler.lab.findings import Cell, Finding, Line, LineChart, Table, milliseconds, percentile
from scheduler.lab.schema import LabDatabase
from scheduler.lab.settings import LabSettings
from scheduler.lab.strategies import STRATEGIES, Strategy
from scheduler.storage.database import Connection

EMPTY_HANDED_SECONDS = 0.01
"""How long a worker waits that found nothing although jobs are left."""
FEW_WORKERS = 4
"""Cases of up to so many workers run side by side: they sleep nearly all the time."""


@dataclass(slots=True)
class Log:
    """What one worker did: the jobs it executed, how long each claim took in seconds, and how often it got nothing."""

    executed: list[int] = field(default_factory=list)
    claim_seconds: list[float] = field(default_factory=list)
    empty_claims: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case: a strategy with a number of workers."""

    strategy: str
    workers: int
    jobs: int
    job_seconds: float
    wall_seconds: float
    executions: Counter[int]
    attempt_counts: dict[int, int]
    claim_seconds: list[float]
    empty_claims: int

    @property
    def repeated(self) -> int:
        """How many jobs were executed more than once."""
        return sum(times > 1 for times in self.executions.values())

    @property
    def miscounted(self) -> int:
        """How many jobs say another number of attempts than they had."""
        return sum(count != self.executions[job] for job, count in self.attempt_counts.items())

    @property
    def throughput(self) -> float:
        """Jobs done in a second, each counted once."""
        return len(self.executions) / self.wall_seconds

    @property
    def efficiency(self) -> float:
        """Throughput as a share of workers that never wait."""
        return self.throughput * self.job_seconds / self.workers


def measure_claims(database: LabDatabase, settings: LabSettings, say: Callable[[str], None]) -> Finding:
    """All strategies with all numbers of workers."""
    stop = threading.Event()
    few = [number for number in settings.claim_workers if number <= FEW_WORKERS]
    many = [number for number in settings.claim_workers if number > FEW_WORKERS]

    def measure(kind: type[Strategy], numbers: list[int]) -> list[Measured]:
        found = []
        for number in numbers:
            say(f"claim: {kind.name}; workers: {number}")
            found.append(measure_case(database, kind(number), settings, stop))
        return found

    alone = [measure(kind, many) for kind in STRATEGIES]
    together = side_by_side([partial(measure, kind, few) for kind in STRATEGIES], stop)
    return _finding([case for cases in zip(together, alone, strict=True) for case in chain(*cases)], settings)


def measure_case(database: LabDatabase, strategy: Strategy, settings: LabSettings, stop: threading.Event) -> Measured:
    """Let all workers of one case empty their queue; they begin at the same moment."""
    queue = f"{strategy.name}, {strategy.workers}"
    with database.connection() as connection:
        strategy.fill(connection, queue, settings.claim_jobs)
        began = time.monotonic()
        logs = crew(
            database,
            strategy.workers,
            lambda own: empty_queue(own, strategy, queue, settings.claim_job_seconds, stop),
            stop,
            autocommit=strategy.autocommit,
        )
        wall_seconds = time.monotonic() - began
        attempt_counts = strategy.attempt_counts(connection, queue)
    return Measured(
        strategy=strategy.name,
        workers=strategy.workers,
        jobs=settings.claim_jobs,
        job_seconds=settings.claim_job_seconds,
        wall_seconds=wall_seconds,
        executions=Counter(job for log in logs for job in log.executed),
        attempt_counts=attempt_counts,
        claim_seconds=[seconds for log in logs for seconds in log.claim_seconds],
        empty_claims=sum(log.empty_claims for log in logs),
    )


def empty_queue(
    connection: Connection, strategy: Strategy, queue: str, job_seconds: float, stop: threading.Event
) -> Log:
    """One worker: claim, sleep, finish, until nothing is left or ``stop`` is set."""
    log = Log()
    while not stop.is_set():
        began = time.monotonic()
        claimed = strategy.claim(connection, queue)
        if claimed is not None:
            log.claim_seconds.append(time.monotonic() - began)
            stop.wait(job_seconds)
            strategy.finish(connection, claimed)
            log.executed.append(claimed.id)
        elif strategy.is_left(connection, queue):
            log.empty_claims += 1
            stop.wait(EMPTY_HANDED_SECONDS)
        else:
            break
    return log


def _finding(measured: list[Measured], settings: LabSettings) -> Finding:
    jobs, seconds = settings.claim_jobs, settings.claim_job_seconds
    return Finding(
        name="claim",
        title="Ways to claim a job",
        setup=f"{jobs} jobs that sleep {seconds * 1000:g} ms, taken by more and more workers, each with a connection "
        "of its own. All workers begin at the same moment. Executions are counted by the workers, not by the table. "
        "sched uses its own tables and functions, with attempts, leases and tokens; the others a bare table with a "
        "partial index. A claim is timed from its first statement to its commit. Two commits are not flushed: where "
        "the transaction stays open there is none yet, and a claim of sched need not be durable (lost in a crash, it "
        f"is claimed again). Cases of up to {FEW_WORKERS} workers run side by side.",
        conclusion="Selecting a job and then updating it executes jobs several times: workers that were in step once "
        "tend to meet again at the next job, and the more there are, the more of them repeat the work of others. "
        "Their attempts overwrite each other's count, so that the table does not show it. A row lock prevents both. "
        "With a plain `for update` a claim waits for whoever locks the same row, which at this rate of claims is "
        "seldom long; with `skip locked` it waits for nobody, at any rate. Holding the transaction open gives good "
        "figures here; what it costs is in the next experiment. The design claims with `for update skip locked` and "
        "commits before the work begins; its tokens, leases and attempts cost no throughput here.",
        tables=[_table(measured)],
        charts=_charts(measured, settings),
    )


def _table(measured: list[Measured]) -> Table:
    columns = (
        "strategy", "workers", "executions", "jobs executed more than once", "wrong attempt counts", "empty claims",
        "jobs/s", "% of ideal", "claim p50, ms", "claim p99, ms",
    )  # fmt: skip
    return Table(title="Claim strategies", columns=columns, rows=[_row(case) for case in measured])


def _row(case: Measured) -> tuple[Cell, ...]:
    return (
        case.strategy,
        case.workers,
        case.executions.total(),
        case.repeated,
        case.miscounted,
        case.empty_claims,
        round(case.throughput, 1),
        round(100 * case.efficiency, 1),
        milliseconds(percentile(case.claim_seconds, 0.5)),
        milliseconds(percentile(case.claim_seconds, 0.99)),
    )


def _charts(measured: list[Measured], settings: LabSettings) -> list[LineChart]:
    def lines(value: Callable[[Measured], float]) -> list[Line]:
        return [
            Line(
                name=kind.name, points=[(case.workers, value(case)) for case in measured if case.strategy == kind.name]
            )
            for kind in STRATEGIES
        ]

    ideal = [(float(workers), workers / settings.claim_job_seconds) for workers in settings.claim_workers]
    return [
        LineChart(
            name="claim-throughput",
            title="Jobs done in a second, each counted once",
            x="workers",
            y="jobs/s",
            lines=[Line(name="ideal", points=ideal, style="dashes"), *lines(lambda case: case.throughput)],
        ),
        LineChart(
            name="claim-executions",
            title=f"Executions of {settings.claim_jobs} jobs",
            x="workers",
            y="executions",
            lines=lines(lambda case: case.executions.total()),
        ),
        LineChart(
            name="claim-latency",
            title="Time to claim a job, p99",
            x="workers",
            y="ms",
            lines=lines(lambda case: 1000 * (percentile(case.claim_seconds, 0.99) or 0)),
            is_logarithmic=True,
        ),
    ]

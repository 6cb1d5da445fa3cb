"""Experiment: when jobs that always fail are tried again, against the formula.

The product's worker runs them in this process, with the delays that SQL computes. Beside what happened, the delays of
``sched.retry_delay`` itself are drawn many times, with a seed.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from statistics import median
from typing import NoReturn

from scheduler.handlers import HandlerRegistry, Job
from scheduler.lab.crew import beside
from scheduler.lab.findings import Cell, Finding, Line, LineChart, Table
from scheduler.lab.schema import LabDatabase
from scheduler.lab.settings import LabSettings
from scheduler.lab.statements import rows, run, value
from scheduler.services.worker import Worker, WorkerSettings

QUEUE = "backoff"
POLL = timedelta(milliseconds=20)
LOOK_SECONDS = 0.05

Gaps = dict[int, list[float]]
"""Seconds after attempts, by the number of the attempt."""


def measure_backoff(database: LabDatabase, settings: LabSettings, say: Callable[[str], None]) -> Finding:
    """Let jobs fail until they are dead."""
    rule = {"base": settings.backoff_base, "max": settings.backoff_max, "jitter": settings.backoff_jitter}
    say(f"backoff: {settings.backoff_jobs} jobs fail {settings.backoff_attempts} times each")
    registry = HandlerRegistry()
    registry.handler("lab.fail")(fail)
    worker = Worker(
        database,
        registry,
        WorkerSettings(queues=(QUEUE,), concurrency=settings.backoff_jobs, poll=POLL, name="lab"),
        {},
    )
    with database.connection() as connection:
        run(connection, "backoff_fill", jobs=settings.backoff_jobs, attempts=settings.backoff_attempts, **rule)
        with beside(lambda stop: worker.run(stop, abort=stop)):
            _await_death(lambda: value(connection, "backoff_unfinished") == 0)
        measured = _by_attempt(rows(connection, "backoff_gaps"))
        drawn = _by_attempt(
            rows(
                connection,
                "backoff_draws",
                draws=settings.backoff_draws,
                attempts=settings.backoff_attempts - 1,
                seed=settings.seed,
                **rule,
            )
        )
    return _finding(measured, drawn, settings)


def fail(job: Job) -> NoReturn:
    """The handler."""
    raise RuntimeError(f"attempt {job.attempt} fails, as it should")


def expected_seconds(attempt: int, settings: LabSettings) -> float:
    """The delay after an attempt, before jitter: base * 2^(attempt - 1), at most the maximum."""
    doublings: int = 2 ** (attempt - 1)
    return min(settings.backoff_max, settings.backoff_base * doublings).total_seconds()


def _await_death(is_over: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not is_over():
        pause.wait(LOOK_SECONDS)


def _by_attempt(found: list[tuple[int, float]]) -> Gaps:
    gaps: Gaps = defaultdict(list)
    for attempt, seconds in found:
        gaps[attempt].append(seconds)
    return gaps


def _finding(measured: Gaps, drawn: Gaps, settings: LabSettings) -> Finding:
    base, most = settings.backoff_base.total_seconds(), settings.backoff_max.total_seconds()
    return Finding(
        name="backoff",
        title="Attempts and their backoff",
        setup=f"{settings.backoff_jobs} jobs fail {settings.backoff_attempts} times each: base {base:g} s, maximum "
        f"{most:g} s, jitter {settings.backoff_jitter:g}. Measured is the time from the start of an attempt to the "
        f"start of the next one, with a worker that looks every {POLL.total_seconds() * 1000:g} ms; drawn are "
        f"{settings.backoff_draws} delays of `sched.retry_delay` for each attempt, with the seed.",
        conclusion="Delays double up to the maximum, and jitter spreads jobs that failed together, so that they do "
        "not return together. No attempt begins before its delay is over; how much later it begins is the poll of "
        "the worker and the queue in front of it. Delays are computed in SQL only, so they are the same for a worker "
        "in any language and for the reaper.",
        tables=[_table(measured, drawn, settings)],
        charts=[_chart(measured, settings)],
    )


def _table(measured: Gaps, drawn: Gaps, settings: LabSettings) -> Table:
    columns = (
        "after attempt", "base * 2^(n-1), capped, s", "with jitter from, s", "to, s", "drawn least, s",
        "drawn p50, s", "drawn most, s", "jobs", "measured least, s", "measured p50, s", "measured most, s",
        "too early",
    )  # fmt: skip
    found: list[tuple[Cell, ...]] = []
    for attempt, gaps in sorted(measured.items()):
        expected = expected_seconds(attempt, settings)
        least, most = expected * (1 - settings.backoff_jitter), expected * (1 + settings.backoff_jitter)
        figures = (expected, least, most, *_spread(drawn[attempt]))
        too_early = sum(gap < least for gap in gaps)
        found.append((attempt, *_rounded(figures), len(gaps), *_rounded(_spread(gaps)), too_early))
    return Table(title="Time between attempts", columns=columns, rows=found)


def _spread(values: list[float]) -> tuple[float, float, float]:
    return min(values), median(values), max(values)


def _rounded(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(value, 3) for value in values)


def _chart(measured: Gaps, settings: LabSettings) -> LineChart:
    def rule(factor: float) -> list[tuple[float, float]]:
        return [(attempt, factor * expected_seconds(attempt, settings)) for attempt in sorted(measured)]

    return LineChart(
        name="backoff-attempts",
        title="Time to the next attempt",
        x="after attempt",
        y="seconds",
        lines=[
            Line(name="base * 2^(n-1), capped", points=rule(1)),
            Line(name="least with jitter", points=rule(1 - settings.backoff_jitter), style="dashes"),
            Line(name="most with jitter", points=rule(1 + settings.backoff_jitter), style="dashes"),
            Line(
                name="measured",
                points=[(attempt, gap) for attempt, gaps in sorted(measured.items()) for gap in gaps],
                style="dots",
            ),
        ],
    )

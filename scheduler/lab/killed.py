"""Experiment: a worker process is killed while it runs jobs, and another one takes them over.

Both are processes of their own with the product's worker (``killed_worker.py``). This process only looks: at the
running jobs many times a second while it lasts, and at the recorded attempts at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime

from scheduler.errors import StorageError
from scheduler.lab.findings import Cell, Finding, Span, Table, Timeline
from scheduler.lab.schema import LabDatabase
from scheduler.lab.settings import LabSettings
from scheduler.lab.statements import rows, run, value
from scheduler.storage.database import Connection, database_now

FIRST, SECOND = "first worker", "second worker"
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
"""How much longer than the jobs and the lease the whole may take before the lab gives up."""


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs, as one look saw it."""

    job: int
    worker: str
    attempt: int
    started_at: datetime
    heartbeat_at: datetime
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try at a job, as it was recorded."""

    job: int
    number: int
    worker: str
    started_at: datetime
    ended_at: datetime
    outcome: str


@dataclass(slots=True)
class Watch:
    """What was seen so far: the beats of each job, and the last lease of each attempt."""

    beats: set[tuple[int, datetime]] = field(default_factory=set)
    leases: dict[tuple[int, int], Running] = field(default_factory=dict)

    def look(self, connection: Connection) -> list[Running]:
        """See what runs now."""
        running = [Running(*row) for row in rows(connection, "killed_running")]
        for each in running:
            self.leases[each.job, each.attempt] = each
            if each.heartbeat_at > each.started_at:
                self.beats.add((each.job, each.heartbeat_at))
        return running


def measure_killed(database: LabDatabase, settings: LabSettings, say: Callable[[str], None]) -> Finding:
    """Kill the first of two workers while both run jobs; wait until all jobs are done."""
    half = settings.killed_jobs // 2
    watch = Watch()
    with database.connection() as connection:
        run(connection, "jobs_clear")
        run(connection, "killed_fill", jobs=settings.killed_jobs, seconds=settings.killed_job_seconds)
        look = _patient_look(connection, watch, settings)
        with _worker(database, FIRST, half, settings) as first:
            say("killed: the first worker takes half of the jobs")
            _until(look, lambda running: _is_alive(first) and len(running) == half)
            with _worker(database, SECOND, settings.killed_jobs, settings) as second:
                say("killed: the second one takes the rest")
                _until(look, lambda running: _is_alive(second) and len(running) == settings.killed_jobs)
                _until(look, lambda running: _is_ripe(connection, running, settings))
                first.kill()
                first.wait()
                killed_at = database_now(connection)
                say(f"killed: the first worker is dead; its leases last {settings.killed_lease.total_seconds():g} s")
                _until(look, lambda _: _is_alive(second) and value(connection, "killed_unfinished") == 0)
        attempts = [Attempt(*row) for row in rows(connection, "killed_attempts")]
    if all(attempt.outcome != "lost" for attempt in attempts):
        raise _idle_victim(settings)
    return _finding(attempts, watch, killed_at, settings)


def _is_alive(worker: subprocess.Popen[bytes]) -> bool:
    """True. Raises StorageError for a process that has ended by itself; what it said stands on stderr."""
    if worker.poll() is not None:
        raise StorageError(f"a worker process of the lab ended by itself, with code {worker.returncode}")
    return True


def _is_ripe(connection: Connection, running: list[Running], settings: LabSettings) -> bool:
    """Whether the jobs of the first worker run long enough and have had a beat. Raises StorageError if none is left."""
    mine = [each for each in running if each.worker == FIRST]
    if not mine:
        raise _idle_victim(settings)
    age = min((database_now(connection) - each.started_at).total_seconds() for each in mine)
    return age >= settings.killed_after_seconds and all(each.heartbeat_at > each.started_at for each in mine)


def _idle_victim(settings: LabSettings) -> StorageError:
    return StorageError(
        f"the first worker had no job left when it was to be killed: its jobs of {settings.killed_job_seconds:g} s had "
        f"ended, or their leases of {settings.killed_lease.total_seconds():g} s; run the lab again on an idle machine"
    )


def _patient_look(connection: Connection, watch: Watch, settings: LabSettings) -> Iterator[list[Running]]:
    """Look again and again. Raises StorageError when it takes far longer than it can."""
    longest = 2 * settings.killed_job_seconds + settings.killed_lease.total_seconds() + PATIENCE_SECONDS
    deadline = time.monotonic() + longest
    while time.monotonic() < deadline:
        yield watch.look(connection)
        time.sleep(LOOK_SECONDS)
    raise StorageError(f"the jobs of the killed worker were not done after {longest:g} seconds")


def _until(look: Iterator[list[Running]], condition: Callable[[list[Running]], bool]) -> None:
    for running in look:
        if condition(running):
            return


@contextmanager
def _worker(
    database: LabDatabase, name: str, concurrency: int, settings: LabSettings
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process; it ends when its input does, which is at the end of the block or with this process.

    The first line of its input says what to do: a DSN may hold a password, which has no place among arguments.
    """
    lease_seconds = settings.killed_lease.total_seconds()
    order = {"dsn": database.dsn, "name": name, "concurrency": concurrency, "lease_seconds": lease_seconds}
    process = subprocess.Popen(
        [sys.executable, "-m", "scheduler.lab.killed_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):  # it has ended already: _is_alive tells
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        yield process
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def _finding(attempts: list[Attempt], watch: Watch, killed_at: datetime, settings: LabSettings) -> Finding:
    began = min(attempt.started_at for attempt in attempts)
    lease, beat = settings.killed_lease.total_seconds(), (settings.killed_lease / 3).total_seconds()
    return Finding(
        name="killed",
        title="A killed worker",
        setup=f"{settings.killed_jobs} jobs of {settings.killed_job_seconds:g} s, a lease of {lease:g} s, a beat every "
        f"{beat:.1f} s (a third of the lease). Two real worker processes run half of the jobs each; the first is "
        "ended by SIGKILL. Times are seconds since the first job started, by the database's clock.",
        conclusion="Nobody has to notice the death: the leases run out, the reaper in the other worker makes the jobs "
        "available within a second, and they run again. The lost attempts are on record with their reason. How long "
        "a job stands still is the rest of its lease, at most the lease itself; the beat only has to be well within "
        "it, and jobs may be longer than the lease. A worker that comes back with an old token changes nothing.",
        tables=[_takeovers(attempts, watch, killed_at, began), _attempts(attempts, began)],
        charts=[_timeline(attempts, watch, killed_at, began)],
    )


def _takeovers(attempts: list[Attempt], watch: Watch, killed_at: datetime, began: datetime) -> Table:
    columns = (
        "job", "killed at", "last beat", "lease ended", "taken over", "started again", "done", "stood still for, s",
    )  # fmt: skip
    found: list[tuple[Cell, ...]] = []
    for lost in (attempt for attempt in attempts if attempt.outcome == "lost"):
        lease = watch.leases[lost.job, lost.number]
        again = next(each for each in attempts if (each.job, each.number) == (lost.job, lost.number + 1))
        moments = (
            killed_at, lease.heartbeat_at, lease.lease_expires_at, lost.ended_at, again.started_at, again.ended_at,
        )  # fmt: skip
        still = (again.started_at - killed_at).total_seconds()
        found.append((lost.job, *(_since(began, moment) for moment in moments), round(still, 2)))
    return Table(title="Jobs of the killed worker", columns=columns, rows=found)


def _attempts(attempts: list[Attempt], began: datetime) -> Table:
    return Table(
        title="Attempts on record",
        columns=("job", "attempt", "worker", "started", "ended", "outcome"),
        rows=[
            (
                each.job,
                each.number,
                each.worker,
                _since(began, each.started_at),
                _since(began, each.ended_at),
                each.outcome,
            )
            for each in attempts
        ],
    )


def _timeline(attempts: list[Attempt], watch: Watch, killed_at: datetime, began: datetime) -> Timeline:
    spans, expired = [], []
    for each in attempts:
        row, start, end = f"job {each.job}", _since(began, each.started_at), _since(began, each.ended_at)
        if each.outcome != "lost":
            spans.append(Span(row=row, who=each.worker, start=start, end=end))
            continue
        expired.append(watch.leases[each.job, each.number].lease_expires_at)
        death = _since(began, killed_at)
        spans.append(Span(row=row, who=each.worker, start=start, end=death))
        spans.append(Span(row=row, who="nobody: the lease runs out", start=death, end=end, is_idle=True))
    return Timeline(
        name="killed-timeline",
        title="Who ran which job when",
        x="seconds",
        spans=spans,
        marks=[(_since(began, killed_at), "SIGKILL"), (_since(began, max(expired)), "leases ended")],
        ticks=sorted((f"job {job}", _since(began, at)) for job, at in watch.beats),
    )


def _since(began: datetime, moment: datetime) -> float:
    return round((moment - began).total_seconds(), 2)

"""Simulate: run definitions through the real planner and the real ``sched.fire`` on a virtual clock.

The database is a throw-away one that nobody else uses. Time jumps from event to event: a date is due, the planner
looks, a simulated job ends, an outage ends. Jobs take as long as the caller says and always succeed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from scheduler.storage.database import Connection, transaction
from scheduler.storage.firing import FirePass, fire
from scheduler.storage.simulation import (
    SimulatedDate,
    Started,
    finish_jobs,
    next_event,
    simulated_dates,
    start_jobs,
)

BUSIEST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """``[since, until)``; in ``[start, end)`` of each outage nothing fires and nothing is planned.

    ``duration`` is how long every job takes, ``concurrency`` how many run at once.
    """

    since: datetime
    until: datetime
    outages: Sequence[tuple[datetime, datetime]] = ()
    duration: timedelta = timedelta(minutes=1)
    concurrency: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """A date and what became of it; ``started_at`` and ``ended_at`` are None for those that never ran."""

    date: SimulatedDate
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def wait(self) -> timedelta | None:
        """How long its job waited for a slot or a worker after it was due."""
        return None if self.started_at is None else self.started_at - self.date.due_at


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """Every date in the order in which it was due, counts by outcome, and the minutes in which most jobs started."""

    runs: Sequence[SimulatedRun]
    outcomes: Mapping[str, int]
    busiest: Sequence[tuple[datetime, int]]
    most_at_once: int


class Planned(Protocol):
    """What a slice of planning says."""

    @property
    def schedules(self) -> int:
        """How many schedules were written."""
        ...


Plan = Callable[[Connection, datetime], Planned]
"""One slice of planning at a virtual moment: ``Planner.run_once``."""


def simulate(
    connection: Connection,
    request: SimulationRequest,
    plan: Plan,
    progress: Callable[[datetime], None] = lambda now: None,
) -> SimulationResult:
    """Run the schedules that are applied there from ``since`` to ``until``."""
    return _Simulation(connection, request, plan).run(progress)


class _Simulation:
    def __init__(self, connection: Connection, request: SimulationRequest, plan: Plan) -> None:
        self._connection = connection
        self._request = request
        self._plan = plan
        self._ending: list[tuple[datetime, int, Started]] = []
        self._started: dict[int, datetime] = {}
        self._ended: dict[int, datetime] = {}
        self._most_at_once = 0

    def run(self, progress: Callable[[datetime], None]) -> SimulationResult:
        now: datetime | None = self._request.since
        while now is not None and now < self._request.until:
            progress(now)
            self._step(now)
            now = self._next(now)
        return self._result()

    def _step(self, now: datetime) -> None:
        """Everything that happens at one moment: jobs end, dates are decided, coming ones planned, jobs start."""
        done = []
        while self._ending and self._ending[0][0] <= now:
            ended_at, _, job = heapq.heappop(self._ending)
            self._ended[job.id] = ended_at
            done.append(job)
        if done:
            with transaction(self._connection):
                finish_jobs(self._connection, done)
        if self._outage_at(now) is None:
            while self._pass(now).is_more_due or self._plan(self._connection, now).schedules:
                pass
        self._start(now)

    def _pass(self, now: datetime) -> FirePass:
        with transaction(self._connection):
            return fire(self._connection, "simulation", now)

    def _start(self, now: datetime) -> None:
        free = self._request.concurrency - len(self._ending)
        if free <= 0:
            return
        with transaction(self._connection):
            jobs = start_jobs(self._connection, free)
        for job in jobs:
            self._started[job.id] = now
            heapq.heappush(self._ending, (now + self._request.duration, job.id, job))
        self._most_at_once = max(self._most_at_once, len(self._ending))

    def _next(self, now: datetime) -> datetime | None:
        moments = [self._ending[0][0]] if self._ending else []
        outage_end = self._outage_at(now)
        if outage_end is not None:
            moments.append(outage_end)
        else:
            upcoming = next_event(self._connection, now)
            moments += [upcoming] if upcoming is not None else []
        return min(moments, default=None)

    def _outage_at(self, now: datetime) -> datetime | None:
        """When the outage that holds this moment ends; None if there is none."""
        return max((end for start, end in self._request.outages if start <= now < end), default=None)

    def _result(self) -> SimulationResult:
        dates = simulated_dates(self._connection, self._request.until)
        runs = [
            SimulatedRun(
                date=date,
                started_at=self._started.get(date.job_id) if date.job_id is not None else None,
                ended_at=self._ended.get(date.job_id) if date.job_id is not None else None,
            )
            for date in dates
        ]
        outcomes = Counter(f"{date.state} ({date.reason})" if date.reason else date.state for date in dates)
        minutes = Counter(at.replace(second=0, microsecond=0) for at in self._started.values())
        busiest = sorted(minutes.items(), key=lambda item: (-item[1], item[0]))[:BUSIEST_SHOWN]
        return SimulationResult(
            runs=runs, outcomes=dict(outcomes.most_common()), busiest=busiest, most_at_once=self._most_at_once
        )

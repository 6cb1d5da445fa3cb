"""Starts claimed jobs as slots become free, each where it belongs: on an event loop, in a thread or in a process.

What ended while it waited for a slot, cannot be read or has no handler is not begun: it returns with its ending. Claims
and settles nothing: see ``worker`` and ``settler``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial

from scheduler.core.jobs.error_text import error_text
from scheduler.core.models import AttemptOutcome
from scheduler.handlers import HandlerRegistry, Job
from scheduler.services.executors import Execution, Executor, Function, failure
from scheduler.services.executors.http import HttpRunner
from scheduler.services.executors.process import ProcessRunner
from scheduler.services.executors.python import EventLoopExecutor, ThreadExecutor
from scheduler.services.executors.shell import ShellRunner
from scheduler.services.executors.sql import SqlRunner
from scheduler.services.worker.in_flight import Ended, InFlight
from scheduler.storage.jobs import Ending
from scheduler.storage.unreadable import Unreadable

OVERRUN_SECONDS = 10.0
"""How long work that can be ended may take to end after its time-out."""


class Dispatcher:
    """Starts jobs when there are slots for them, each in its executor."""

    def __init__(self, registry: HandlerRegistry, in_flight: InFlight, environment: Mapping[str, str]) -> None:
        self._registry = registry
        self._in_flight = in_flight
        self._shell = ShellRunner(environment)
        self._in_threads: Mapping[str, Function] = {
            "run.http": HttpRunner(environment).run,
            "run.sql": SqlRunner(environment).run,
        }
        self._processes = ProcessRunner(environment["SCHED_DSN"])
        self._event_loop = EventLoopExecutor("sched-async", self._returned)
        self._threads = ThreadExecutor("sched-thread", self._returned)
        # Commands have a loop of their own: an async handler that blocks its loop must not stall their pipes.
        self._commands = EventLoopExecutor("sched-commands", self._returned)
        self._starting = threading.Lock()
        self._is_closed = False

    def start(self, executions: list[Execution]) -> None:
        """Start these as soon as there are slots for them; jobs of unknown type fail at once."""
        self._in_flight.add(executions)
        self._start_waiting()

    def close(self, *, at_once: bool) -> None:
        """Start nothing more and end what runs; commands get their time after SIGTERM unless it must be at once."""
        with self._starting:
            self._is_closed = True
        if at_once:
            self._shell.patience = 0.0
        self._event_loop.close(1.0)
        self._threads.close(0.0)
        self._processes.close()
        self._commands.close(self._shell.patience + 1.0)
        self._shell.close()

    def _returned(self, finished: Sequence[Ended]) -> None:
        self._in_flight.returned(finished)
        if self._in_flight.waiting:
            self._start_waiting()

    def _start_waiting(self) -> None:
        with self._starting:
            while not self._is_closed and (executions := self._in_flight.occupy_slots()):
                self._start(executions)

    def _start(self, executions: list[Execution]) -> None:
        work: dict[Executor, list[tuple[Execution, Function]]] = {
            self._event_loop: [],
            self._threads: [],
            self._commands: [],
        }
        unstarted: list[Ended] = []
        for execution in executions:
            place = self._place(execution)
            if isinstance(place, Ending):
                unstarted.append((execution, place))
                continue
            executor, function, allowance = place
            if execution.job.timeout is not None:
                execution.deadline = time.monotonic() + execution.job.timeout.total_seconds() + allowance
            work[executor].append((execution, function))
        for executor, begun in work.items():
            if begun:
                executor.start(begun)
        if unstarted:
            self._in_flight.returned(unstarted)

    def _place(self, execution: Execution) -> tuple[Executor, Function, float] | Ending:
        """Where an execution runs, which function, and its seconds to end after a time-out; or why it is not begun."""
        job = execution.job
        if execution.is_cancelled:  # or its lease was lost, while it waited for a slot
            return failure(execution, asyncio.CancelledError())
        if isinstance(job.payload, Unreadable) or isinstance(job.run, Unreadable):
            return _unreadable(job)
        if job.job_type == "run.shell":
            return self._commands, self._shell.run, OVERRUN_SECONDS
        if job.job_type in self._in_threads:
            return self._threads, self._in_threads[job.job_type], 0.0
        handler = self._registry.find(job.job_type)
        if handler is None:
            return _unknown_type(job)
        if handler.isolation == "process":
            return self._threads, partial(self._processes.run, reference=handler.reference), 0.0
        if handler.is_async:
            return self._event_loop, handler.function, OVERRUN_SECONDS
        return self._threads, handler.function, 0.0


def _unreadable(job: Job) -> Ending:
    field, value = ("payload", job.payload) if isinstance(job.payload, Unreadable) else ("run", job.run)
    return Ending(
        outcome=AttemptOutcome.DISCARDED,
        error=error_text(
            f'its {field} {value}; correct it in sched.jobs, then "sched jobs retry {job.id}" lets the job run'
        ),
    )


def _unknown_type(job: Job) -> Ending:
    return Ending(
        outcome=AttemptOutcome.FAILED,
        error=f'no handler is registered for "{job.job_type}" in this worker: start it with --app and the module that '
        f'has @handler("{job.job_type}")',
    )

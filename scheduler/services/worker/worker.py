"""The worker as a whole, and its main loop: claim as many jobs as can start, and start them.

A claim is worth trying when a hint came, when a scheduled job is due, when the last one brought all that was asked
for, or at the start. What can start: a job for each free slot and, while jobs are short, as many more as slots will
take within 20 ms; should they take none for 100 ms, these are handed back. Claim and settle are separate transactions
on separate connections: one that did both deadlocked with four workers in 5 of 30 runs (PERFORMANCE). Stopping: no
new claims; what finishes within the grace is settled, the rest is handed back.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from uuid import uuid4

from scheduler.errors import StorageError, TransientStorageError
from scheduler.handlers import HandlerRegistry
from scheduler.services.executors import Execution
from scheduler.services.loop import Link
from scheduler.services.worker.dispatcher import Dispatcher
from scheduler.services.worker.guard import Guard
from scheduler.services.worker.heartbeat import Heartbeat
from scheduler.services.worker.in_flight import InFlight
from scheduler.services.worker.settings import WorkerResult, WorkerSettings
from scheduler.services.worker.settler import Settler
from scheduler.services.worker.watcher import Watcher
from scheduler.storage.database import Database
from scheduler.storage.jobs import (
    SettleOutcome,
    WorkerRow,
    announce_worker,
    claim_jobs,
    hand_back_jobs,
    jobs_remain,
    next_due,
    orphaned_jobs,
    register_worker,
    remove_worker,
)
from scheduler.storage.migrations import require_schema
from scheduler.storage.unreadable import read_what_is_readable

logger = logging.getLogger("scheduler.worker")

STOP_LOOK_SECONDS = 0.1
"""How soon a stop signal is noticed."""
AHEAD_SECONDS = 0.02
"""How soon the jobs that are claimed beside those for free slots should start."""
SHORT_SECONDS = 0.005
"""Up to this mean duration jobs count as short."""
STUCK_SECONDS = 0.1
"""After how long without a free slot jobs that wait for one are handed back."""
SOONEST_SECONDS = 0.01
"""The shortest sleep until a scheduled job is due."""
SWITCH_SECONDS = 0.0005
COLLECT_AFTER = 50_000
"""Containers made and not freed until the garbage collector looks; 500 jobs in flight are about 6,000."""
LAST_WORDS_SECONDS = 5.0
"""How long the end of a worker may wait for a database that does not answer."""


class Worker:
    """Executes the jobs of some queues until it is stopped, or until nothing is left."""

    def __init__(
        self,
        database: Database,
        registry: HandlerRegistry,
        settings: WorkerSettings,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``environment`` is what ``from_env`` values are taken from; SCHED_DSN is added to it."""
        self._database = database
        self._settings = settings
        self._row = WorkerRow(id=uuid4(), name=settings.name, queues=settings.queues, concurrency=settings.concurrency)
        self._in_flight = InFlight(settings.concurrency)
        self._hinted = threading.Event()
        self._is_next_due_unknown = threading.Event()
        self._next_due = math.inf
        self._ahead = 0
        self._unstarted: list[Execution] = []
        self._link = Link(database, "claim", read_what_is_readable)
        self._settler = Settler(database, self._in_flight, settings.batch, self._ask_when_due)
        self._heartbeat = Heartbeat(database, self._in_flight, settings)
        self._guard = Guard(self._in_flight)
        self._watcher = Watcher(
            database, self._in_flight, self._row, settings.poll, hint=self._hint, ask_when_due=self._ask_when_due
        )
        self._work = Dispatcher(
            registry,
            self._in_flight,
            {**(os.environ if environment is None else environment), "SCHED_DSN": database.dsn},
        )
        self._may_have_orphans = False
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event, *, abort: threading.Event | None = None, drain: bool = False) -> WorkerResult:
        """Work until ``stop`` is set, then wait for running jobs at most the grace; ``abort`` cuts that short.

        With ``drain`` it also ends when nothing of its queues is due or running, here or in any other worker. Jobs
        whose backoff ends later are not waited for. Raises StorageError when the database is unreachable at the
        start or unfit; later outages are waited out. Call it once.
        """
        try:
            self._link.call(require_schema)
            self._link.call(lambda connection: register_worker(connection, self._row, has_free_slots=False))
            with _tuned_interpreter():
                return self._run(stop, abort or threading.Event(), drain)
        finally:
            self._link.close()

    def _run(self, stop: threading.Event, abort: threading.Event, drain: bool) -> WorkerResult:
        known_as = {"worker": str(self._row.id), "worker_name": self._row.name}
        logger.info("worker started", extra={"event": "worker_started", **known_as})
        done = threading.Event()
        with ExitStack() as threads:
            for name, target in (
                ("heartbeat", self._heartbeat.run),
                ("guard", self._guard.run),
                ("watcher", self._watcher.run),
            ):
                threads.callback(self._start(name, partial(target, done)).join, LAST_WORDS_SECONDS)
            threads.callback(done.set)
            settler = self._start("settler", self._settler.run)
            try:
                self._main_loop(stop, drain)
            finally:
                self._shut_down(abort, settler)
        self._try_last(lambda: self._link.call(lambda connection: remove_worker(connection, self._row.id)))
        if self._failure is not None:
            raise self._failure
        result = self._in_flight.result()
        logger.info("worker stopped", extra={"event": "worker_stopped", **known_as, "result": result})
        return result

    def _main_loop(self, stop: threading.Event, drain: bool) -> None:
        self._hinted.set()
        while not stop.is_set() and self._failure is None:
            self._in_flight.changed.clear()
            try:
                if self._can_claim() and (self._hinted.is_set() or time.monotonic() >= self._next_due):
                    self._hinted.clear()
                    if self._claim() or self._announce():
                        self._hinted.set()
                    continue
                self._hand_back_stuck(STUCK_SECONDS)
                if self._is_next_due_unknown.is_set():
                    self._ask_next_due()
                if drain and self._is_drained():
                    return
            except TransientStorageError as error:
                self._link.wait_after(error, stop)
                self._hinted.set()
                self._may_have_orphans = True
            self._in_flight.changed.wait(self._longest_wait())

    def _longest_wait(self) -> float:
        """Seconds until the next turn if nothing happens. What is due is no reason for one while nothing can start."""
        until_due = self._next_due - time.monotonic() if self._can_claim() else STOP_LOOK_SECONDS
        return min(STOP_LOOK_SECONDS, max(0.0, until_due))

    def _can_claim(self) -> bool:
        """Whether jobs can start, and the database keeps up with recording the last ones."""
        in_flight = self._in_flight
        limit = 2 * max(self._settings.concurrency, self._settings.batch)
        has_room = in_flight.free_slots > 0 or in_flight.waiting < self._ahead // 2
        return has_room and in_flight.unsettled < limit

    def _claim(self) -> bool:
        """Claim and start what fits; whether there may be more."""
        if self._may_have_orphans:
            self._return_orphans()
        settings = self._settings
        self._ahead = self._jobs_ahead()
        asked = min(self._in_flight.free_slots + self._ahead - self._in_flight.waiting, settings.batch)
        if asked <= 0:  # jobs take longer than they did
            return True
        self._next_due = math.inf
        sent = time.monotonic()
        jobs = self._link.call(
            lambda connection: claim_jobs(
                connection, queues=settings.queues, worker=self._row.id, limit=asked, lease=settings.lease
            )
        )
        trusted_until = sent + settings.trust.total_seconds()
        self._work.start([Execution(job, self._database, sent, trusted_until) for job in jobs])
        if len(jobs) < asked:
            self._is_next_due_unknown.set()
        return len(jobs) == asked

    def _jobs_ahead(self) -> int:
        """How many jobs will get a slot within ``AHEAD_SECONDS``, beside those for which one is free now."""
        mean = self._in_flight.take_mean_duration()
        if mean is None:
            return self._ahead
        if mean > SHORT_SECONDS:
            return 0
        return min(self._settings.batch, int(self._settings.concurrency * AHEAD_SECONDS / mean))

    def _hand_back_stuck(self, patience: float) -> None:
        """Hand back the jobs that wait although no slot became free for ``patience`` seconds."""
        self._unstarted += self._in_flight.withdraw_waiting(patience)
        if self._unstarted:
            self._ahead = 0
            self._hand_back(self._unstarted)
            self._unstarted = []

    def _ask_next_due(self) -> None:
        """Find out when the next scheduled job is due, if it is before the watcher's next look."""
        self._is_next_due_unknown.clear()
        settings = self._settings
        delay = self._link.call(lambda connection: next_due(connection, settings.queues, settings.poll))
        if delay is not None:
            self._next_due = time.monotonic() + max(delay, SOONEST_SECONDS)

    def _return_orphans(self) -> None:
        """Give back what a claim took whose answer was lost. One that commits later is left to its lease."""
        known = [execution.job for execution in self._in_flight.snapshot()]
        orphans = self._link.call(lambda connection: orphaned_jobs(connection, self._row.id, known))
        if orphans:
            self._link.call(lambda connection: hand_back_jobs(connection, orphans))
            ids = [job.id for job in orphans]
            logger.warning("claimed without an answer", extra={"event": "jobs_orphaned", "job_ids": ids})
        self._may_have_orphans = False

    def _announce(self) -> bool:
        """Before waiting for hints, make sure they are sent; true when that was news, and one more look is due."""
        if not self._watcher.is_listening or self._watcher.is_announced:
            return False
        self._link.call(lambda connection: announce_worker(connection, self._row.id, has_free_slots=True))
        self._watcher.is_announced = True
        return True

    def _is_drained(self) -> bool:
        return self._in_flight.is_empty and not self._link.call(
            lambda connection: jobs_remain(connection, self._settings.queues)
        )

    def _hint(self) -> None:
        self._hinted.set()
        self._in_flight.changed.set()

    def _ask_when_due(self) -> None:
        self._is_next_due_unknown.set()
        self._in_flight.changed.set()

    def _shut_down(self, abort: threading.Event, settler: threading.Thread) -> None:
        deadline = time.monotonic() + self._settings.shutdown_grace.total_seconds()
        self._try_last(lambda: self._hand_back_stuck(0.0))
        while not (self._in_flight.is_empty or abort.is_set() or self._failure or time.monotonic() >= deadline):
            self._in_flight.changed.clear()
            self._in_flight.changed.wait(STOP_LOOK_SECONDS)
        unfinished = self._in_flight.withdraw()
        for execution in self._in_flight.snapshot():
            if not execution.is_completing:
                execution.cancel()
        self._work.close(at_once=abort.is_set())
        self._try_last(lambda: self._hand_back([*self._unstarted, *unfinished]))
        self._settler.finish()
        settler.join(LAST_WORDS_SECONDS)
        self._settler.give_up()

    def _hand_back(self, unfinished: list[Execution]) -> None:
        if not unfinished:
            return
        unfinished.sort(key=lambda execution: execution.job.id)
        jobs = [execution.job for execution in unfinished]
        outcomes = self._link.call(lambda connection: hand_back_jobs(connection, jobs))
        self._in_flight.settled(
            (execution, "handed_back" if outcome is SettleOutcome.SETTLED else "lost")
            for execution, outcome in zip(unfinished, outcomes, strict=True)
        )
        logger.info("jobs handed back", extra={"event": "jobs_handed_back", "job_ids": [job.id for job in jobs]})

    def _try_last(self, work: Callable[[], object]) -> None:
        """Do something before the end, for a few seconds at most; then leave it to the leases."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while time.monotonic() < deadline:
            try:
                work()
            except TransientStorageError as error:
                self._link.wait_after(error, threading.Event())
            except StorageError as error:
                logger.warning("shutdown incomplete", extra={"event": "shutdown_incomplete", "error": str(error)})
                return
            else:
                return

    def _start(self, name: str, target: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                target()
            except BaseException as error:
                logger.exception("a thread of the worker failed", extra={"event": "worker_failed", "thread": name})
                self._failure = error
                self._in_flight.changed.set()

        thread = threading.Thread(target=guarded, name=f"sched-{name}", daemon=True)
        thread.start()
        return thread


@contextmanager
def _tuned_interpreter() -> Iterator[None]:
    """Settings of the interpreter that suit a worker, for the time of a ``with`` block.

    A thread that has its answer from the database goes on soon beside handlers that compute: with the interpreter's
    5 ms, draining no-op ``async`` jobs was up to a third slower. Jobs are freed by their reference counts; the garbage
    collector, which took a third of the time, looks for cycles less often than once a batch.
    """
    switches, (young, *older) = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(switches, SWITCH_SECONDS))
    gc.set_threshold(max(young, COLLECT_AFTER) if young else 0, *older)
    try:
        yield
    finally:
        sys.setswitchinterval(switches)
        gc.set_threshold(young, *older)

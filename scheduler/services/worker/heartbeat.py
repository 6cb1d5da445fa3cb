"""Extends the leases of the jobs in flight, all of them in one statement, three times per lease.

What handlers say about their progress goes along. Progress that is new does not wait for the next heartbeat: about once
a second the jobs that have some, and only they, get theirs early.

The time at which a heartbeat was sent counts, not the answer's: so a lease that we trust has not expired in the
database. When the database says ``lost``, the work is ended; its ending will not be accepted anyway.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from scheduler.core.jobs.progress import storable_progress
from scheduler.errors import StorageError, TransientStorageError
from scheduler.services.executors import Execution
from scheduler.services.loop import Link
from scheduler.services.worker.in_flight import InFlight
from scheduler.services.worker.settings import WorkerSettings
from scheduler.storage.database import Database
from scheduler.storage.jobs import HeartbeatAnswer, extend_leases

logger = logging.getLogger("scheduler.worker")

PROGRESS_SECONDS = 1.0
"""How often handlers are asked whether their progress is new."""


class Heartbeat:
    """The heartbeat thread's work."""

    def __init__(self, database: Database, in_flight: InFlight, settings: WorkerSettings) -> None:
        self._in_flight = in_flight
        self._lease = settings.lease
        self._interval = settings.heartbeat_interval.total_seconds()
        self._trust = settings.trust.total_seconds()
        self._link = Link(database, "heartbeat")

    def run(self, done: threading.Event) -> None:
        """Send heartbeats, and store progress, until ``done`` is set."""
        next_at = time.monotonic() + self._interval
        try:
            while not self._wait(done, next_at):
                try:
                    if time.monotonic() < next_at:
                        self.report_once()
                    else:
                        self.send_once()
                        next_at = self._next_at()
                except TransientStorageError as error:
                    self._link.wait_after(error, done)
                    next_at = time.monotonic()
        finally:
            self._link.close()

    def send_once(self) -> None:
        """Extend every lease that was last extended half an interval ago or earlier, and store progress."""
        now = time.monotonic()
        self._send(
            each
            for each in self._in_flight.snapshot()
            if now - each.extended_at >= self._interval / 2 or _has_news(each)
        )

    def report_once(self) -> None:
        """Store the progress that is new; without any, nothing is sent."""
        self._send(each for each in self._in_flight.snapshot() if _has_news(each))

    def _send(self, due: Iterable[Execution]) -> None:
        # A job that we lost and claimed again is here twice: only its newest attempt, the later one, can be alive.
        by_id = {each.job.id: each for each in due}
        if not by_id:
            return
        sent = time.monotonic()
        jobs = [each.job for each in by_id.values()]
        said = {each.job.id: each.progress for each in by_id.values() if each.progress and _has_news(each)}
        news = [storable_progress(said[job.id]) if job.id in said else None for job in jobs]
        try:
            answers = self._link.call(lambda connection: extend_leases(connection, jobs, self._lease, news))
        except TransientStorageError:
            raise
        except StorageError as error:  # a note that the database's encoding lacks is no reason to lose a lease
            if not said:
                raise
            logger.warning("progress not stored", extra={"event": "progress_not_stored", "error": str(error)})
            answers = self._link.call(
                lambda connection: extend_leases(connection, jobs, self._lease, [None] * len(jobs))
            )
        for answer in answers:
            execution = by_id[answer.id]
            self._apply(execution, answer, sent)
            if answer.id in said:
                execution.stored_progress = said[answer.id]

    def _apply(self, execution: Execution, answer: HeartbeatAnswer, sent: float) -> None:
        if answer.outcome == "extended":
            execution.extended_at = sent
            execution.trusted_until = sent + self._trust
            if answer.is_cancel_requested and not execution.is_cancelled:
                logger.info("cancel requested", extra=_about(execution, "cancel_requested"))
                execution.cancel()
        elif execution.ending is None and not execution.is_completing and not execution.is_lost:
            # While it is being settled or completed, "lost" only says that it is not running any more.
            logger.warning("lease lost", extra=_about(execution, "lease_lost"))
            execution.lose()

    def _next_at(self) -> float:
        now = time.monotonic()
        oldest = min((each.extended_at for each in self._in_flight.snapshot()), default=now)
        return now + max(oldest + self._interval - now, self._interval / 10)

    def _wait(self, done: threading.Event, next_at: float) -> bool:
        now = time.monotonic()
        planned = now + min(max(next_at - now, 0.0), PROGRESS_SECONDS)
        is_done = done.wait(planned - now)
        late = time.monotonic() - planned
        if late > self._interval and not self._in_flight.is_empty:
            logger.warning(
                "the heartbeat was late: a handler kept the interpreter to itself, or the process was stopped; "
                'a handler that computes for long without pause needs isolation="process"',
                extra={"event": "heartbeat_late", "late_seconds": round(late, 3)},
            )
        return is_done


def _has_news(execution: Execution) -> bool:
    is_at_work = execution.ending is None and not execution.is_lost
    return is_at_work and execution.progress != execution.stored_progress


def _about(execution: Execution, event: str) -> dict[str, object]:
    job = execution.job
    return {"event": event, "job_id": job.id, "job_type": job.job_type, "attempt": job.attempt}

"""Extends the leases of the jobs in flight, all of them in one statement, three times per lease.

The time at which a beat was sent counts, not the answer's: so a lease that we trust has not expired in the database.
When the database says ``lost``, the work is ended; its ending will not be accepted anyway.
"""

from __future__ import annotations

import logging
import threading
import time

from scheduler.errors import TransientStorageError
from scheduler.services.executors import Execution
from scheduler.services.loop import Link
from scheduler.services.worker.in_flight import InFlight
from scheduler.services.worker.settings import WorkerSettings
from scheduler.storage.database import Database
from scheduler.storage.jobs import Beat, beat_jobs

logger = logging.getLogger("scheduler.worker")


class Heart:
    """The heartbeat thread's work."""

    def __init__(self, database: Database, in_flight: InFlight, settings: WorkerSettings) -> None:
        self._in_flight = in_flight
        self._lease = settings.lease
        self._interval = settings.beat.total_seconds()
        self._trust = settings.trust.total_seconds()
        self._link = Link(database, "heartbeat")

    def run(self, done: threading.Event) -> None:
        """Beat until ``done`` is set."""
        try:
            delay = self._interval
            while not self._wait(done, delay):
                try:
                    self.beat_once()
                except TransientStorageError as error:
                    self._link.wait_after(error, done)
                    delay = 0.0
                else:
                    delay = self._until_next()
        finally:
            self._link.close()

    def beat_once(self) -> None:
        """Extend every lease that was last extended half an interval ago or earlier."""
        sent = time.monotonic()
        due = [each for each in self._in_flight.snapshot() if sent - each.extended_at >= self._interval / 2]
        if not due:
            return
        by_id = {each.job.id: each for each in due}
        jobs = [each.job for each in due]
        for beat in self._link.call(lambda connection: beat_jobs(connection, jobs, self._lease)):
            self._apply(by_id[beat.id], beat, sent)

    def _apply(self, execution: Execution, beat: Beat, sent: float) -> None:
        if beat.outcome == "extended":
            execution.extended_at = sent
            execution.trusted_until = sent + self._trust
            if beat.is_cancel_requested and not execution.is_cancelled:
                logger.info("cancel requested", extra=_about(execution, "cancel_requested"))
                execution.cancel()
        elif execution.ending is None and not execution.is_completing and not execution.is_lost:
            # While it is being settled or completed, "lost" only says that it is not running any more.
            logger.warning("lease lost", extra=_about(execution, "lease_lost"))
            execution.lose()

    def _until_next(self) -> float:
        extended = [each.extended_at for each in self._in_flight.snapshot()]
        if not extended:
            return self._interval
        left = min(extended) + self._interval - time.monotonic()
        return min(max(left, self._interval / 10), self._interval)

    def _wait(self, done: threading.Event, delay: float) -> bool:
        planned = time.monotonic() + delay
        is_done = done.wait(delay)
        late = time.monotonic() - planned
        if late > self._interval and not self._in_flight.is_empty:
            logger.warning(
                "the heartbeat was late: a handler kept the interpreter to itself, or the process was stopped; "
                'a handler that computes for long without pause needs isolation="process"',
                extra={"event": "heartbeat_late", "late_seconds": round(late, 3)},
            )
        return is_done


def _about(execution: Execution, event: str) -> dict[str, object]:
    job = execution.job
    return {"event": event, "job_id": job.id, "job_type": job.job_type, "attempt": job.attempt}

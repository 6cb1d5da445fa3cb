"""Watches the clock for the jobs in flight: time-outs, and leases that can no longer be trusted.

Touches no database, so that it keeps time while every connection hangs. Monotonic clock only.
"""

from __future__ import annotations

import logging
import threading
import time

from scheduler.services.executors import Execution, timed_out
from scheduler.services.worker.in_flight import InFlight

logger = logging.getLogger("scheduler.worker")

TICK_SECONDS = 0.1


class Guard:
    """The guard thread's work."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight

    def run(self, done: threading.Event) -> None:
        """Look ten times a second until ``done`` is set."""
        while not done.wait(TICK_SECONDS):
            self.look_once(time.monotonic())

    def look_once(self, now: float) -> None:
        """End what is out of time at ``now``, and stop the work of leases that may have expired."""
        for execution in self._in_flight.snapshot():
            is_overdue = execution.deadline is not None and now >= execution.deadline
            if execution.is_settled and is_overdue and not execution.is_cancelled:
                execution.cancel()  # it completed in a transaction, and its work goes on
            if execution.ending is not None or execution.is_completing:
                continue
            if is_overdue:
                self._time_out(execution)
            elif now >= execution.trusted_until and not execution.is_lost:
                logger.warning("lease not trusted any more", extra=_about(execution, "lease_not_trusted"))
                execution.lose()

    def _time_out(self, execution: Execution) -> None:
        note = "" if execution.stop else ": its thread is left alone, and its slot stays taken until it returns"
        if self._in_flight.end_early(execution, timed_out(execution.job, note)):
            logger.warning("handler overruns", extra=_about(execution, "handler_overruns"))
            execution.cancel()


def _about(execution: Execution, event: str) -> dict[str, object]:
    job = execution.job
    return {"event": event, "job_id": job.id, "job_type": job.job_type, "attempt": job.attempt}

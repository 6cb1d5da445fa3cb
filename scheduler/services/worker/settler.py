"""Records how attempts ended, in batches: whatever has ended while the last batch was being written.

Nothing is held back to fill a batch. A repeated call after a lost answer is harmless, because the database knows each
attempt by its token. A batch that the database refuses is settled one by one; what cannot be stored becomes a failed
attempt, because a job must not stay running for the sake of its result.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from scheduler.core.models import AttemptOutcome
from scheduler.errors import StorageError, TransientStorageError
from scheduler.handlers import Job
from scheduler.services.executors import Execution
from scheduler.services.loop import Link
from scheduler.services.worker.in_flight import Ended, InFlight
from scheduler.storage.database import Connection, Database
from scheduler.storage.jobs import Ending, SettleOutcome, complete_jobs, fail_jobs

logger = logging.getLogger("scheduler.worker")

Write = Callable[[Connection, Sequence[tuple[Job, Ending]]], list[SettleOutcome]]

IDLE_WAIT_SECONDS = 1.0
_COUNTED_AS = {outcome: outcome.value for outcome in AttemptOutcome} | {AttemptOutcome.TIMED_OUT: "failed"}


class Settler:
    """The settling thread's work. ``rescheduled`` is called whenever attempts did not succeed."""

    def __init__(self, database: Database, in_flight: InFlight, batch: int, rescheduled: Callable[[], None]) -> None:
        self._in_flight = in_flight
        self._batch = batch
        self._rescheduled = rescheduled
        self._link = Link(database, "settle")
        self._is_finishing = False
        self._gives_up = threading.Event()

    def run(self) -> None:
        """Settle until ``finish``, and then what is left."""
        try:
            while ended := self._next_batch():
                self._settle(ended)
        finally:
            self._link.close()

    def finish(self) -> None:
        """No more endings will come: ``run`` returns when all are recorded."""
        self._is_finishing = True
        self._in_flight.has_ended.set()

    def give_up(self) -> None:
        """``run`` returns soon, recorded or not; leases that are left expire."""
        self._gives_up.set()
        self.finish()

    def _next_batch(self) -> list[Ended]:
        while not self._gives_up.is_set():
            is_last = self._is_finishing
            if (ended := self._in_flight.take_ended(self._batch)) or is_last:
                return ended
            self._in_flight.has_ended.wait(IDLE_WAIT_SECONDS)
        return []

    def _settle(self, ended: list[Ended]) -> None:
        ended.sort(key=_by_id)
        succeeded = [each for each in ended if each[1].outcome is AttemptOutcome.SUCCEEDED]
        others = [each for each in ended if each[1].outcome is not AttemptOutcome.SUCCEEDED]
        if succeeded:
            self._record(complete_jobs, succeeded)
        if others:
            self._record(fail_jobs, others)
            self._rescheduled()

    def _record(self, write: Write, ended: list[Ended]) -> None:
        rows = [(execution.job, ending) for execution, ending in ended]
        while not self._gives_up.is_set():
            try:
                outcomes = self._link.call(lambda connection: write(connection, rows))
            except TransientStorageError as error:
                self._link.wait_after(error, self._gives_up)
            except (StorageError, ValueError) as error:  # ValueError: a text that the driver cannot encode
                self._record_singly(write, ended, error)
                return
            else:
                self._note(ended, outcomes)
                return

    def _record_singly(self, write: Write, ended: list[Ended], error: Exception) -> None:
        if len(ended) > 1:
            for each in ended:
                self._record(write, [each])
            return
        ((execution, ending),) = ended
        replacement = _unstorable(error)
        if ending == replacement:  # even that was refused: the lease will expire
            logger.error("job not settled", extra=_about(execution, "job_not_settled", error=str(error)))
            self._in_flight.settled([(execution, "lost")])
        else:
            self._record(fail_jobs, [(execution, replacement)])

    def _note(self, ended: list[Ended], outcomes: list[SettleOutcome]) -> None:
        counted = []
        for (execution, ending), outcome in zip(ended, outcomes, strict=True):
            counted.append((execution, "lost" if outcome is SettleOutcome.LOST else _COUNTED_AS[ending.outcome]))
            if outcome is SettleOutcome.LOST:
                logger.warning("lease lost", extra=_about(execution, "lease_lost", ended_as=ending.outcome.value))
            elif ending.outcome is not AttemptOutcome.SUCCEEDED:
                first_line = (ending.error or "").split("\n", 1)[0]
                logger.warning("attempt ended", extra=_about(execution, f"job_{ending.outcome}", error=first_line))
        self._in_flight.settled(counted)


def _by_id(ended: Ended) -> int:
    return ended[0].job.id


def _unstorable(error: Exception) -> Ending:
    return Ending(
        outcome=AttemptOutcome.FAILED,
        error=f"how the attempt ended could not be stored: {type(error).__name__}",
    )


def _about(execution: Execution, event: str, **more: object) -> dict[str, object]:
    job = execution.job
    return {"event": event, "job_id": job.id, "job_type": job.job_type, "attempt": job.attempt, **more}

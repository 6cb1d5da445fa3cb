"""How work is carried out: a claimed job becomes an execution, an executor runs it, and it ends in an ``Ending``.

``Execution`` is one attempt in this process and what stands behind the ``Job`` its handler holds. Executors take
executions, run them beside each other and report each exactly once, when its work has returned. They know nothing of
claiming or settling: see ``services.worker``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from scheduler.core.jobs.error_text import error_text, exception_text
from scheduler.core.jobs.progress import Progress
from scheduler.core.models import AttemptOutcome
from scheduler.core.storable import place, storable, storage_faults
from scheduler.handlers import Cancel, Detached, Discard, Hold, Job, LeaseLost, Retry
from scheduler.storage.database import Connection, Database
from scheduler.storage.jobs import Ending, SettleOutcome, complete_jobs

LONGEST_DELAY = timedelta(days=3650)
SUCCEEDED = Ending(outcome=AttemptOutcome.SUCCEEDED)

Function = Callable[[Job], Any]


class WorkFailed(Exception):
    """The work of an executor failed; the text says all there is to say, without a traceback."""


class Returned(Detached):
    """Stands behind a job whose work has returned, for whoever still holds the job."""

    def __init__(self, *, is_cancelled: bool) -> None:
        self.is_cancelled = is_cancelled

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        raise LeaseLost("the handler has returned")
        yield


RETURNED, RETURNED_CANCELLED = Returned(is_cancelled=False), Returned(is_cancelled=True)


class Execution:
    """One attempt at a job in this process.

    ``ending`` is set once, by whoever ends it first: the returning work, its time-out, or ``transaction``.
    ``trusted_until`` is on the monotonic clock: before it the lease is certainly ours. ``progress`` is what the handler
    said last, ``stored_progress`` what of it the database has.
    """

    __slots__ = (
        "database",
        "deadline",
        "ending",
        "extended_at",
        "is_cancelled",
        "is_completing",
        "is_lost",
        "is_settled",
        "job",
        "progress",
        "started_at",
        "stop",
        "stored_progress",
        "trusted_until",
    )

    def __init__(self, job: Job, database: Database, extended_at: float, trusted_until: float) -> None:
        self.job = job
        self.database = database
        self.extended_at = extended_at
        self.trusted_until = trusted_until
        self.started_at = extended_at
        self.deadline: float | None = None
        self.ending: Ending | None = None
        self.stop: Callable[[], object] | None = None
        self.is_cancelled = False
        self.is_lost = False
        self.is_completing = False
        self.is_settled = False
        self.progress: Progress | None = None
        self.stored_progress: Progress | None = None
        job.control = self

    def cancel(self) -> None:
        """Ask the work to stop, and end it where that is possible. May be called again."""
        self.is_cancelled = True
        stop = self.stop  # another thread may let go of it now
        if stop is not None:
            stop()

    def lose(self) -> None:
        """The lease is not ours any more, or may not be: nothing the work does counts from here on."""
        self.is_lost = True
        self.cancel()

    def report(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress, until a heartbeat takes it along."""
        self.progress = Progress(fraction, note)

    def let_go(self) -> None:
        """The work has returned. Job and execution, which held each other, are freed without the garbage collector."""
        self.stop = None
        self.job.control = RETURNED_CANCELLED if self.is_cancelled else RETURNED

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """What a handler writes, and the completion of its job, in one transaction: see ``Job.transaction``."""
        if self.is_lost or self.is_settled:
            raise LeaseLost(f"job {self.job.id} is not ours any more" if self.is_lost else "already completed")
        with self.database.connection() as connection:
            try:
                with connection.transaction():  # the handler's own database errors reach it unmapped
                    yield connection
                    ending = success(self.job, self.job.result)
                    if ending.outcome is not AttemptOutcome.SUCCEEDED:
                        raise WorkFailed(ending.error)
                    # From here a heartbeat may be told that the job is not running any more: it must not believe it.
                    self.begin_completing()
                    (outcome,) = complete_jobs(connection, [(self.job, ending)])
                    if outcome is not SettleOutcome.SETTLED:
                        self.is_lost = True
                        raise LeaseLost(f"job {self.job.id} is not ours any more: its lease expired or was withdrawn")
                self.is_settled = True
                self.ending = ending
            finally:
                if self.is_completing:
                    self.end_completing()

    def begin_completing(self) -> None:
        """The completion is about to be sent."""
        self.is_completing = True

    def end_completing(self) -> None:
        """The completion was committed, or it was not: ``is_settled`` says which."""
        self.is_completing = False


Report = Callable[[Sequence[tuple[Execution, Ending]]], None]
"""Takes executions whose work has returned, and how it ended. Called from any thread."""


class Executor(Protocol):
    """Runs executions beside each other."""

    def start(self, work: Sequence[tuple[Execution, Function]]) -> None:
        """Begin all of these; returns at once."""
        ...

    def close(self, patience: float) -> None:
        """End what still runs, as far as possible, within about ``patience`` seconds."""
        ...


def success(job: Job, result: Any) -> Ending:
    """The ending of work that returned ``result``. A result that cannot be stored is a failed attempt.

    Our own executors may return the ending itself.
    """
    if isinstance(result, Ending):
        return result
    if result is None:
        return Ending(outcome=AttemptOutcome.SUCCEEDED, metadata=metadata_text(job)) if job.metadata else SUCCEEDED
    if faults := storage_faults(result):
        path, fault = faults[0]
        return Ending(
            outcome=AttemptOutcome.FAILED,
            error=error_text(f"the handler's result cannot be stored: {place('result', path)}: {fault}"),
            metadata=metadata_text(job),
        )
    return Ending(outcome=AttemptOutcome.SUCCEEDED, result=_json(result), metadata=metadata_text(job))


def failure(execution: Execution, error: BaseException) -> Ending:
    """The ending of work that raised. Never raises: a job must not stay running for the sake of its error."""
    try:
        return _judged(execution, error)
    except Exception as fault:  # a class of the handler's own that cannot be read
        return Ending(outcome=AttemptOutcome.FAILED, error=exception_text(fault))


def _judged(execution: Execution, error: BaseException) -> Ending:
    job = execution.job
    match error:
        case Retry():
            return _ending(job, AttemptOutcome.RETRIED, str(error), _bounded_delay(error.after))
        case Discard():
            return _ending(job, AttemptOutcome.DISCARDED, str(error) or "the handler discarded the job")
        case Hold():
            return _ending(job, AttemptOutcome.HELD, str(error) or "the handler held the job")
        case Cancel():
            return _ending(job, AttemptOutcome.CANCELLED, str(error) or "the handler cancelled the job")
        case asyncio.CancelledError() | WorkFailed() if execution.is_lost:
            # We ended it; if the lease is still ours after all, the job is free for its next attempt at once.
            return _ending(job, AttemptOutcome.RETRIED, "its lease could not be extended in time", timedelta(0))
        case asyncio.CancelledError() if execution.is_cancelled:
            return _ending(job, AttemptOutcome.CANCELLED, "cancelled: it was asked to stop")
        case WorkFailed() | LeaseLost():
            return _ending(job, AttemptOutcome.FAILED, str(error))
        case _:
            ours = error.__traceback__
            error.__traceback__ = ours.tb_next if ours is not None else None  # begin with the handler's own frame
            return _ending(job, AttemptOutcome.FAILED, exception_text(error))


def timed_out(job: Job, note: str = "") -> Ending:
    """The ending of work that took longer than its time-out."""
    return _ending(job, AttemptOutcome.TIMED_OUT, f"timed out after {job.timeout}{note}")


def metadata_text(job: Job) -> str | None:
    """The attempt's metadata as JSON; what cannot be stored is replaced by the reason."""
    if not job.metadata:
        return None
    try:
        if faults := storage_faults(job.metadata):
            path, fault = faults[0]
            return _json({"error": error_text(f"{place('metadata', path)}: {fault}")})
        return _json(job.metadata)
    except RuntimeError:  # a thread that overran goes on and adds to it
        return _json({"error": "metadata: was changed while it was read"})


def _ending(job: Job, outcome: AttemptOutcome, error: str, delay: timedelta | None = None) -> Ending:
    return Ending(outcome=outcome, error=error_text(error), delay=delay, metadata=metadata_text(job))


def _bounded_delay(after: timedelta | None) -> timedelta | None:
    return after if after is None else max(timedelta(0), min(after, LONGEST_DELAY))


def _json(value: Any) -> str:
    return json.dumps(storable(value), ensure_ascii=False)

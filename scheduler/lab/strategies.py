"""Ways for many workers to take jobs from one table: what people write, with and without mistakes, and the product's.

All but the product claim from ``bare_jobs``, the product from its own table through its own functions. A strategy is
used by all workers of one case; each brings its connection. ``queue`` names the jobs of the case.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from scheduler.core.models import AttemptOutcome
from scheduler.handlers import Job
from scheduler.lab.statements import rows, run, value
from scheduler.storage.database import Connection
from scheduler.storage.jobs import Ending, claim_jobs, complete_jobs

MEETING_SECONDS = 30.0
LEASE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that a worker has taken; ``job`` is what the product needs to settle it."""

    id: int
    job: Job | None = None


class Strategy(ABC):
    """How a worker takes a job and says that it is done."""

    name: str
    """As the tables show it."""
    autocommit: bool
    """Whether each statement is a transaction of its own; otherwise ``claim`` and ``finish`` say where one ends."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @abstractmethod
    def fill(self, connection: Connection, queue: str, jobs: int) -> None:
        """Make that many pending jobs."""

    @abstractmethod
    def claim(self, connection: Connection, queue: str) -> Claimed | None:
        """Take a job; None when this worker came away empty-handed."""

    @abstractmethod
    def finish(self, connection: Connection, claimed: Claimed) -> None:
        """Record that the job is done."""

    @abstractmethod
    def is_left(self, connection: Connection, queue: str) -> bool:
        """Whether a job still waits."""

    @abstractmethod
    def attempt_counts(self, connection: Connection, queue: str) -> dict[int, int]:
        """How many attempts each job says it had, by id."""


class BareStrategy(Strategy):
    """What the alternatives have in common: the table of the lab."""

    def fill(self, connection: Connection, queue: str, jobs: int) -> None:
        run(connection, "bare_fill", queue=queue, jobs=jobs)

    def finish(self, connection: Connection, claimed: Claimed) -> None:
        run(connection, "bare_finish", id=claimed.id)
        connection.commit()

    def is_left(self, connection: Connection, queue: str) -> bool:
        left = bool(value(connection, "bare_is_left", queue=queue))
        connection.commit()
        return left

    def attempt_counts(self, connection: Connection, queue: str) -> dict[int, int]:
        return dict(rows(connection, "bare_counts", queue=queue))

    def _next(self, connection: Connection, statement: str, queue: str) -> tuple[int, int] | None:
        found = rows(connection, statement, queue=queue)
        return found[0] if found else None


class Naive(BareStrategy):
    """Select a job, then update it. Nothing keeps another worker from selecting it in between.

    All workers begin at once: the first updates wait until every worker has selected, as happens where a queue is
    filled while its workers wait. After that they run freely.
    """

    name = "select, then update"
    autocommit = True

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._meeting = threading.Barrier(workers, timeout=MEETING_SECONDS)
        self._met: set[int] = set()

    def claim(self, connection: Connection, queue: str) -> Claimed | None:
        found = self._next(connection, "bare_next", queue)
        if id(connection) not in self._met:
            self._met.add(id(connection))
            self._meeting.wait()
        if found is None:
            return None
        run(connection, "bare_start", id=found[0], seen=found[1])
        return Claimed(found[0])


class ShortTransactions(BareStrategy):
    """Lock a job and commit before the work begins."""

    autocommit = False
    statement: str

    def claim(self, connection: Connection, queue: str) -> Claimed | None:
        found = self._next(connection, self.statement, queue)
        if found is not None:
            run(connection, "bare_start", id=found[0], seen=found[1])
        connection.commit()
        return None if found is None else Claimed(found[0])


class Blocking(ShortTransactions):
    """Wait while somebody else has the next job locked."""

    name = "for update"
    statement = "bare_next_blocking"


class Skipping(ShortTransactions):
    """Take the next job that nobody has locked."""

    name = "for update skip locked"
    statement = "bare_next_skipping"


class Held(BareStrategy):
    """Lock the next free job and keep the transaction open while it runs: the lock is the ownership."""

    name = "skip locked, transaction held open"
    autocommit = False

    def claim(self, connection: Connection, queue: str) -> Claimed | None:
        found = self._next(connection, "bare_next_skipping", queue)
        if found is None:
            connection.commit()
            return None
        run(connection, "bare_start", id=found[0], seen=found[1])
        return Claimed(found[0])


class Product(Strategy):
    """``sched.claim`` and ``sched.complete``: skip what others lock, commit at once, own by lease and token."""

    name = "sched"
    autocommit = True

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._worker = uuid4()

    def fill(self, connection: Connection, queue: str, jobs: int) -> None:
        run(connection, "jobs_fill", queue=queue, jobs=jobs)

    def claim(self, connection: Connection, queue: str) -> Claimed | None:
        jobs = claim_jobs(connection, queues=[queue], worker=self._worker, limit=1, lease=LEASE)
        return Claimed(jobs[0].id, jobs[0]) if jobs else None

    def finish(self, connection: Connection, claimed: Claimed) -> None:
        assert claimed.job is not None
        complete_jobs(connection, [(claimed.job, Ending(outcome=AttemptOutcome.SUCCEEDED))])

    def is_left(self, connection: Connection, queue: str) -> bool:
        return bool(value(connection, "jobs_is_left", queue=queue))

    def attempt_counts(self, connection: Connection, queue: str) -> dict[int, int]:
        return dict(rows(connection, "jobs_counts", queue=queue))


STRATEGIES: tuple[type[Strategy], ...] = (Naive, Blocking, Held, Skipping, Product)

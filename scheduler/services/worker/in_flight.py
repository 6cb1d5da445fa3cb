"""The jobs a worker process holds, shared by its threads: from the claim until the ending is recorded.

A job occupies a slot until its work has returned, and a lease until it is settled. The two differ: a thread that
overran its time-out is settled while it still runs, and a finished job keeps its lease until its ending is stored.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from scheduler.core.models import AttemptOutcome
from scheduler.services.executors import Execution
from scheduler.services.worker.settings import WorkerResult
from scheduler.storage.jobs import Ending

HANDED_BACK = Ending(outcome=AttemptOutcome.LOST, error="handed back")
"""Ends executions here whose jobs return to the queue; it is never stored."""

Ended = tuple[Execution, Ending]


class InFlight:
    """All executions of this process. Every method may be called from any thread."""

    def __init__(self, concurrency: int) -> None:
        self.changed = threading.Event()
        """Set when the pump should look again: a slot was freed, a job settled, a hint came."""
        self.has_ended = threading.Event()
        """Set when the settler should look again."""
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._executions: dict[str, Execution] = {}
        self._ended: list[Ended] = []
        self._occupied = 0
        self._counts: Counter[str] = Counter()

    @property
    def free_slots(self) -> int:
        """How many more jobs can start now."""
        return self._concurrency - self._occupied

    @property
    def is_empty(self) -> bool:
        """Whether every ending is recorded. Threads that overran may still run."""
        return not self._executions

    @property
    def unsettled(self) -> int:
        """How many jobs are held, running or not."""
        return len(self._executions)

    def add(self, executions: Sequence[Execution]) -> None:
        """These were claimed and are about to start."""
        with self._lock:
            self._executions.update((execution.job.lease_token, execution) for execution in executions)
            self._occupied += len(executions)
            self._counts["claimed"] += len(executions)

    def returned(self, finished: Sequence[Ended]) -> None:
        """The work of these has returned: their slots are free, and endings that are new await the settler."""
        with self._lock:
            self._occupied -= len(finished)
            for execution, ending in finished:
                execution.let_go()
                if execution.is_settled:
                    self._forget(execution, "succeeded")
                else:
                    self._end(execution, ending)
        self.has_ended.set()
        self.changed.set()

    def end_early(self, execution: Execution, ending: Ending) -> bool:
        """End an execution whose work has not returned; False if it has ended already."""
        with self._lock:
            is_first = not execution.is_completing and self._end(execution, ending)
        self.has_ended.set()
        return is_first

    def take_ended(self, limit: int) -> list[Ended]:
        """Up to ``limit`` executions to be settled, oldest ending first."""
        with self._lock:
            taken, self._ended = self._ended[:limit], self._ended[limit:]
            if not self._ended:
                self.has_ended.clear()
            return taken

    def settled(self, outcomes: Iterable[tuple[Execution, str]]) -> None:
        """The database has answered for these; each is counted under the given word."""
        with self._lock:
            for execution, outcome in outcomes:
                self._forget(execution, outcome)
        self.changed.set()

    def withdraw(self) -> list[Execution]:
        """End all executions that have not ended, without an ending to store; they are to be handed back."""
        with self._lock:
            withdrawn = [each for each in self._executions.values() if each.ending is None and not each.is_completing]
            for execution in withdrawn:
                execution.ending = HANDED_BACK
            return withdrawn

    def snapshot(self) -> list[Execution]:
        """All executions that are not settled."""
        with self._lock:
            return list(self._executions.values())

    def result(self) -> WorkerResult:
        """The counts so far."""
        with self._lock:
            return WorkerResult(**self._counts)

    def _end(self, execution: Execution, ending: Ending) -> bool:
        if execution.ending is not None or execution.is_settled:
            return False
        execution.ending = ending
        self._ended.append((execution, ending))
        return True

    def _forget(self, execution: Execution, outcome: str) -> None:
        if self._executions.pop(execution.job.lease_token, None) is not None:
            self._counts[outcome] += 1

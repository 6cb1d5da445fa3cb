"""The jobs a worker process holds, shared by its threads: from the claim until the ending is recorded.

A job waits for a slot, for moments only, occupies it until its work has returned, and has a lease until it is settled.
Slot and lease differ: a thread that overran its time-out is settled while it still runs, and a finished job keeps its
lease until its ending is stored.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
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
        """Set when the main loop should look again: a slot was freed, a job settled, a hint came."""
        self.has_ended = threading.Event()
        """Set when the settler should look again."""
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._executions: dict[str, Execution] = {}
        self._waiting: deque[Execution] = deque()
        self._last_start = 0.0
        self._ended: list[Ended] = []
        self._occupied = 0
        self._returned = 0
        self._seconds_taken = 0.0
        self._counts: Counter[str] = Counter()

    @property
    def free_slots(self) -> int:
        """How many more jobs can start now."""
        return self._concurrency - self._occupied

    @property
    def waiting(self) -> int:
        """How many claimed jobs have no slot yet."""
        return len(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether every ending is recorded. Threads that overran may still run."""
        return not self._executions

    @property
    def unsettled(self) -> int:
        """How many jobs are held, running or not."""
        return len(self._executions)

    def add(self, executions: Sequence[Execution]) -> None:
        """These were claimed and wait for slots."""
        with self._lock:
            self._executions.update((execution.job.lease_token, execution) for execution in executions)
            if not self._waiting:
                self._last_start = time.monotonic()
            self._waiting.extend(executions)
            self._counts["claimed"] += len(executions)

    def occupy_slots(self) -> list[Execution]:
        """The waiting jobs for which slots are free, in the order of their claims; they occupy them from now."""
        with self._lock:
            count = min(self._concurrency - self._occupied, len(self._waiting))
            if count == 0:
                return []
            self._occupied += count
            self._last_start = now = time.monotonic()
            starting = [self._waiting.popleft() for _ in range(count)]
            for execution in starting:
                execution.started_at = now
            return starting

    def returned(self, finished: Sequence[Ended]) -> None:
        """The work of these has returned: their slots are free, and endings that are new await the settler."""
        with self._lock:
            now = time.monotonic()
            self._occupied -= len(finished)
            self._returned += len(finished)
            for execution, ending in finished:
                self._seconds_taken += now - execution.started_at
                execution.let_go()
                if execution.is_settled:
                    self._forget(execution, "succeeded")
                else:
                    self._end(execution, ending)
        self.has_ended.set()
        self.changed.set()

    def take_mean_duration(self) -> float | None:
        """Seconds that jobs have taken on average which returned since the last call; None without any."""
        with self._lock:
            mean = self._seconds_taken / self._returned if self._returned else None
            self._seconds_taken, self._returned = 0.0, 0
            return mean

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
            self._waiting.clear()
            return _handed_back(
                [each for each in self._executions.values() if each.ending is None and not each.is_completing]
            )

    def withdraw_waiting(self, patience: float) -> list[Execution]:
        """The same for those that wait, if for ``patience`` seconds no slot became free for any."""
        with self._lock:
            if not self._waiting or time.monotonic() < self._last_start + patience:
                return []
            waiting = list(self._waiting)
            self._waiting.clear()
            return _handed_back(waiting)

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


def _handed_back(executions: list[Execution]) -> list[Execution]:
    for execution in executions:
        execution.ending = HANDED_BACK
    return executions

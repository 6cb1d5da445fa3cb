"""Waits for hints that there is something to claim, and every second looks for itself.

The look is the one statement an idle worker sends: is something claimable, is something left for the reaper? Hints
(NOTIFY) only shorten the wait; behind a pooler there are none, and the look alone remains.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from scheduler.errors import TransientStorageError
from scheduler.services.loop import Link
from scheduler.services.worker.in_flight import InFlight
from scheduler.storage.database import Connection, Database
from scheduler.storage.jobs import WorkerRow, look, reap_jobs, register_worker
from scheduler.storage.listening import listen, next_payloads

logger = logging.getLogger("scheduler.worker")

SLICE_SECONDS = 0.2
"""How often the wait for hints is interrupted to see whether the worker stops."""


class Watcher:
    """The watching thread's work.

    ``hint`` is called whenever a claim is worth trying, ``ask_when_due`` when one will be before the next look.
    """

    def __init__(
        self,
        database: Database,
        in_flight: InFlight,
        row: WorkerRow,
        poll: timedelta,
        *,
        hint: Callable[[], None],
        ask_when_due: Callable[[], None],
    ) -> None:
        self.is_listening = False
        self.is_announced = False
        """Whether the database knows that hints are wanted."""
        self._in_flight = in_flight
        self._row = row
        self._poll = poll
        self._hint = hint
        self._ask_when_due = ask_when_due
        self._link = Link(database, "watch", self._prepare)

    def run(self, done: threading.Event) -> None:
        """Watch until ``done`` is set."""
        next_look = time.monotonic()
        try:
            while not done.is_set():
                try:
                    self._await_hint(done, next_look)
                    if time.monotonic() >= next_look:
                        next_look = time.monotonic() + self._poll.total_seconds()
                        self._link.call(self.look_once)
                except TransientStorageError as error:
                    self._link.wait_after(error, done)
        finally:
            self._link.close()

    def look_once(self, connection: Connection) -> None:
        """Ask once; hint or reap accordingly."""
        wants_hints = self.is_listening and self._in_flight.free_slots > 0
        seen = look(connection, self._row, self._poll, has_free_slots=wants_hints)
        if not seen.is_registered:
            register_worker(connection, self._row, has_free_slots=wants_hints)
        self.is_announced = wants_hints
        if seen.is_ready:
            self._hint()
        if seen.is_due_soon:
            self._ask_when_due()
        if seen.is_reap_due:
            self._reap(connection)

    def _await_hint(self, done: threading.Event, next_look: float) -> None:
        wait = min(SLICE_SECONDS, next_look - time.monotonic())
        if wait <= 0:
            return
        self._link.connection()  # says whether it is listening
        if not self.is_listening:
            done.wait(wait)
        elif any(payload in self._row.queues for payload in self._link.call(lambda c: next_payloads(c, wait))):
            self._hint()

    def _reap(self, connection: Connection) -> None:
        result = reap_jobs(connection, self._row.name)
        if result.retried or result.died or result.cancelled or result.admitted:
            logger.warning(
                "expired leases taken over",
                extra={
                    "event": "jobs_reaped",
                    "retried": result.retried,
                    "died": result.died,
                    "cancelled": result.cancelled,
                    "admitted": result.admitted,
                },
            )
            self._hint()

    def _prepare(self, connection: Connection) -> None:
        self.is_listening = listen(connection)
        if not self.is_listening:
            logger.info("notifications do not arrive here: polling only", extra={"event": "polling_only"})
        self._hint()  # whatever was announced while nobody listened

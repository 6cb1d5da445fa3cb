"""Timing and shutdown of long-running services: an interval, back-off on errors, and signals that stop.

A service has ``run_once``; this module repeats it. Errors that may pass by themselves are logged and waited out;
everything else ends the loop. Must not know what any service does.
"""

from __future__ import annotations

import logging
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TypeVar

from scheduler.errors import TransientStorageError
from scheduler.storage.database import Connection, Database

T = TypeVar("T")

logger = logging.getLogger("scheduler.loop")

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 1.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_SIGNAL_SECONDS = 0.2


class Backoff:
    """Delays that double from 50 ms to 1 s, jittered, so that many processes do not return at the same instant."""

    def __init__(self) -> None:
        self._failures = 0

    def next_delay(self) -> float:
        """Seconds to wait after one more failure."""
        delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Something worked again."""
        self._failures = 0


class Link:
    """One connection that is made again after it broke. Used by one thread; ``close`` it there.

    ``prepare`` is called with every new connection.
    """

    def __init__(self, database: Database, purpose: str, prepare: Callable[[Connection], None] | None = None) -> None:
        self._database = database
        self._purpose = purpose
        self._prepare = prepare
        self._connection: Connection | None = None
        self._backoff = Backoff()

    def call(self, work: Callable[[Connection], T]) -> T:
        """``work`` with the connection. Raises TransientStorageError after dropping it: the next may be better."""
        try:
            result = work(self.connection())
        except TransientStorageError:
            self.close()
            raise
        self._backoff.reset()
        return result

    def connection(self) -> Connection:
        """The open connection, made now if there is none."""
        if self._connection is None or self._connection.closed:
            connection = self._database.connect()
            if self._prepare is not None:
                self._prepare(connection)
            self._connection = connection
        return self._connection

    def wait_after(self, error: Exception, stop: threading.Event) -> None:
        """Log the error and wait before the next try, or until ``stop`` is set."""
        delay = self._backoff.next_delay()
        logger.warning(
            "database trouble, trying again",
            extra={"event": "database_trouble", "purpose": self._purpose, "error": str(error), "delay": delay},
        )
        stop.wait(delay)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def run_every(
    run_once: Callable[[Connection], object], *, database: Database, interval: timedelta, stop: threading.Event
) -> None:
    """Call ``run_once`` every ``interval`` on one connection until ``stop`` is set; passing errors are waited out."""
    link = Link(database, getattr(run_once, "__name__", "loop"))
    try:
        while not stop.is_set():
            try:
                link.call(run_once)
            except TransientStorageError as error:
                link.wait_after(error, stop)
            else:
                stop.wait(interval.total_seconds())
    finally:
        link.close()


@contextmanager
def stop_on_signals() -> Iterator[tuple[threading.Event, threading.Event]]:
    """SIGTERM and SIGINT set events instead of ending the process: the first signal ``stop``, the second ``abort``.

    A second one within ``SAME_SIGNAL_SECONDS`` is the same: a terminal and a wrapper such as ``timeout`` each send it.
    Only for the main thread. The former handling is restored at the end of the block.
    """
    stop, abort = threading.Event(), threading.Event()
    # Event.set takes a lock that the interrupted thread may hold; SimpleQueue.put is safe in a signal handler.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()

    def pass_on() -> None:
        stopped_at = 0.0
        while signals.get():
            if not stop.is_set():
                stopped_at = time.monotonic()
                stop.set()
            elif time.monotonic() - stopped_at >= SAME_SIGNAL_SECONDS:
                abort.set()

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    threading.Thread(target=pass_on, name="sched-signals", daemon=True).start()
    former = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS}
    try:
        yield stop, abort
    finally:
        for number, handling in former.items():
            signal.signal(number, handling)
        signals.put(0)

"""Threads that work side by side and end together: when one fails, or somebody interrupts the lab."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

from scheduler.storage.database import Connection, Database

T = TypeVar("T")

START_SECONDS = 30.0
"""The longest wait for the last of a crew to begin."""


def side_by_side(calls: Sequence[Callable[[], T]], stop: threading.Event) -> list[T]:
    """The answers of all calls, made at once, in their order.

    When one fails, or this thread is interrupted, ``stop`` is set, the others are waited for, and the error goes on:
    a call must end soon after ``stop``.
    """
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            stop.set()
            raise
    return [future.result() for future in futures]


def crew(
    database: Database, size: int, work: Callable[[Connection], T], stop: threading.Event, *, autocommit: bool
) -> list[T]:
    """``work`` in ``size`` threads that begin at the same moment, each with a connection of its own.

    See ``side_by_side``.
    """
    start = threading.Barrier(size, timeout=START_SECONDS)

    def begin(connection: Connection) -> T:
        start.wait()
        return work(connection)

    with ExitStack() as connections:
        opened = [connections.enter_context(database.connection()) for _ in range(size)]
        for connection in opened:
            connection.autocommit = autocommit
        return side_by_side([partial(begin, connection) for connection in opened], stop)


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """``work`` in a thread for the time of a ``with`` block; the event it is given is set at the end of the block.

    What it raises is raised at the end of the block.
    """
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, done)
        try:
            yield
        finally:
            done.set()
    future.result()

"""The ticker: fire what is due, plan what comes, and say how long to sleep.

A tick is passes of ``sched.fire`` with slices of planning between them, so that a long outage never keeps fresh dates
waiting. The policies are in ``sql/functions/fire.sql``. Any number of tickers may run: one pass at a time decides.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from scheduler.errors import TransientStorageError
from scheduler.services.loop import Link
from scheduler.storage.database import Connection, Database, database_now, transaction
from scheduler.storage.firing import FirePass, fire, note_clock

logger = logging.getLogger(__name__)

POLL = timedelta(seconds=1)
BUSY_WAIT = timedelta(milliseconds=50)
WAKE_MARGIN = timedelta(milliseconds=1)
"""A pass that comes before the moment it was meant for has to be repeated."""
CLOCK_WARNING = timedelta(minutes=1)
CLOCK_REFUSAL = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickResult:
    """Counts of one tick, and how long nothing will be due (at most ``POLL``, to see what others change)."""

    enqueued: int = 0
    skipped: int = 0
    missed: int = 0
    planned: int = 0
    is_busy: bool = False
    next_due_at: datetime | None = None
    sleep: timedelta = POLL


class Planned(Protocol):
    """What the ticker asks of a slice of planning: how many schedules and dates it wrote."""

    @property
    def schedules(self) -> int:
        """How many schedules were looked at and written."""
        ...

    @property
    def dates(self) -> int:
        """How many dates were written."""
        ...


class Plans(Protocol):
    """The planner, as ``services.planner`` has it."""

    def run_once(self, connection: Connection) -> Planned:
        """Plan one slice."""
        ...


class Ticker:
    """Fires and plans. ``by`` is recorded with every decision."""

    def __init__(self, planner: Plans, by: str, own_clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._planner = planner
        self._by = by
        self._own_clock = own_clock
        self._is_clock_apart: bool | None = None

    def run_once(self, connection: Connection) -> TickResult:
        """Fire and plan until neither has anything left to do right now.

        Each pass and each slice is a transaction of its own. While another ticker's pass is under way nothing is
        decided here, and the result says so.
        """
        if not self._is_clock_sane(connection):
            return TickResult()
        total = TickResult()
        while True:
            started = time.monotonic()
            fired = self._fire(connection)
            planned = self._planner.run_once(connection)
            total = replace(
                total,
                enqueued=total.enqueued + fired.enqueued,
                skipped=total.skipped + fired.skipped,
                missed=total.missed + fired.missed,
                planned=total.planned + planned.dates,
            )
            if fired.outcome == "busy":
                return replace(total, is_busy=True, sleep=BUSY_WAIT)
            if not (fired.is_more_due or planned.schedules):
                elapsed = timedelta(seconds=time.monotonic() - started)
                return replace(total, next_due_at=fired.next_due_at, sleep=_sleep(fired, elapsed))

    def run(self, database: Database, stop: threading.Event) -> None:
        """Tick until ``stop`` is set, sleeping until the next date is due; trouble with the database is waited out."""
        link = Link(database, "tick")
        try:
            while not stop.is_set():
                try:
                    result = link.call(self.run_once)
                except TransientStorageError as error:
                    link.wait_after(error, stop)
                else:
                    stop.wait(result.sleep.total_seconds())
        finally:
            link.close()

    def _fire(self, connection: Connection) -> FirePass:
        with transaction(connection):
            fired = fire(connection, self._by)
        if fired.enqueued or fired.skipped or fired.missed:
            logger.info(
                "fired: %d enqueued, %d skipped, %d missed",
                fired.enqueued,
                fired.skipped,
                fired.missed,
                extra={"event": "fired", "enqueued": fired.enqueued, "skipped": fired.skipped, "missed": fired.missed},
            )
        return fired

    def _is_clock_sane(self, connection: Connection) -> bool:
        """Decisions use the database's clock; one that is a day away from ours is not trusted with them.

        Records a difference of more than a minute for ``sched.health`` and the doctor while there is one, and takes it
        back when there is none: the first time, because another ticker may have left it.
        """
        ahead = self._own_clock() - database_now(connection)
        apart = abs(ahead)
        is_apart = apart > CLOCK_WARNING
        if is_apart and not self._is_clock_apart:
            logger.warning(
                "the clocks of this machine and of the database are %s apart%s",
                apart,
                ": neither firing nor planning until they agree to a day" if apart > CLOCK_REFUSAL else "",
                extra={"event": "clocks_differ", "seconds": apart.total_seconds()},
            )
        if is_apart or self._is_clock_apart is not False:
            with transaction(connection):
                note_clock(connection, ahead if is_apart else None)
        self._is_clock_apart = is_apart
        return apart <= CLOCK_REFUSAL


def _sleep(fired: FirePass, elapsed: timedelta) -> timedelta:
    """Until the next date is due, when the pass began so long ago."""
    if fired.next_due_at is None:
        return POLL
    until_due = fired.next_due_at - fired.decided_at - elapsed + WAKE_MARGIN
    return max(timedelta(0), min(POLL, until_due))

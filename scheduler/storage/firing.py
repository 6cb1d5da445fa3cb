"""One pass of ``sched.fire``, for the ticker and for the simulation. Never commits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.storage.database import Connection
from scheduler.storage.queries import execute, fetch

PASS_LIMIT = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FirePass:
    """What one call of ``sched.fire`` did; see there."""

    outcome: str
    enqueued: int
    skipped: int
    missed: int
    is_more_due: bool
    next_due_at: datetime | None
    decided_at: datetime


def note_clock(connection: Connection, apart: timedelta | None) -> None:
    """Record how far the clock of this process is ahead of the database's; None when they agree."""
    execute(connection, "state_note_clock", {"apart": apart})


def fire(connection: Connection, by: str, now: datetime | None = None) -> FirePass:
    """Decide what is due, at most ``PASS_LIMIT`` dates; at the database's clock unless the simulation says when."""
    (done,) = fetch(connection, FirePass, "fire", {"now": now, "limit": PASS_LIMIT, "by": by})
    return done

"""One pass of ``sched.fire``, for the ticker and for the simulation. Never commits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from scheduler.storage.database import Connection
from scheduler.storage.queries import fetch

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


def fire(connection: Connection, by: str, now: datetime | None = None) -> FirePass:
    """Decide what is due, at most ``PASS_LIMIT`` dates; at the database's clock unless the simulation says when."""
    (done,) = fetch(connection, FirePass, "fire", {"now": now, "limit": PASS_LIMIT, "by": by})
    return done

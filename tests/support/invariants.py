"""The invariants of the design, as ``sched doctor`` checks them. Tests call ``violations`` at their end."""

from __future__ import annotations

from scheduler.storage import doctor
from scheduler.storage.database import Connection


def violations(connection: Connection) -> dict[str, int]:
    """How many cases violate each invariant; empty when all hold. For databases in which no job was pruned."""
    return {title: len(subjects) for title, subjects in doctor.violations(connection, jobs_kept=None).items()}

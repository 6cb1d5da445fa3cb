"""Retention: deletes old jobs, attempts, results, events and settled ledger rows, in batches that are each short.

The ledger is pruned from its old end only, and ``ledger_from`` moves with it in the same transaction: pruned dates are
no gaps and are never planned or filled again. How many ended how stays in ``sched.daily_counts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from scheduler.storage.database import Connection, database_now, transaction
from scheduler.storage.ledger import count_prunable, default_ledger_days, prune

BATCH = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things are kept after they ended. ``ledger`` None means 400 days, 35 for over 100 dates a day."""

    succeeded: timedelta = timedelta(days=30)
    cancelled: timedelta = timedelta(days=30)
    dead: timedelta = timedelta(days=180)
    results: timedelta = timedelta(days=400)
    events: timedelta = timedelta(days=400)
    ledger: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """How many rows went, by kind."""

    rows: Mapping[str, int] = field(default_factory=dict)


def prune_once(
    connection: Connection,
    retention: Retention,
    progress: Callable[[str, int], None] = lambda kind, rows: None,
    now: datetime | None = None,
) -> PruneResult:
    """Delete everything older than its time, batch by batch, each in a transaction of its own.

    Running it beside firing, planning and backfills changes no decision. A second run finds nothing.
    """
    now = now or database_now(connection)
    rows: dict[str, int] = {}

    def empty(kind: str, what: str, parameters: Mapping[str, Any]) -> None:
        while True:
            with transaction(connection):
                count = prune(connection, what, {**parameters, "limit": BATCH})
            if not count:
                return
            rows[kind] = rows.get(kind, 0) + count
            progress(kind, rows[kind])

    for status in ("succeeded", "cancelled", "dead"):
        before = now - getattr(retention, status)
        empty(f"{status} jobs", "prune_jobs", {"status": status, "before": before})
    for schedule in default_ledger_days(connection):
        kept = timedelta(days=schedule.days) if retention.ledger is None else retention.ledger
        empty("dates", "prune_ledger", {"id": schedule.id, "before": now - kept})
    empty("results", "prune_results", {"before": now - retention.results})
    empty("events", "prune_events", {"before": now - retention.events})
    return PruneResult(rows=rows)


def preview(connection: Connection, retention: Retention, now: datetime | None = None) -> PruneResult:
    """What ``prune_once`` would delete now; deletes nothing."""
    now = now or database_now(connection)
    before = {kind: None if kept is None else now - kept for kind, kept in asdict(retention).items()}
    counts = asdict(count_prunable(connection, before, now))
    return PruneResult(rows={kind.replace("_", " "): count for kind, count in counts.items() if count})

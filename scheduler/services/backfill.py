"""Backfill: turn gaps into jobs, each slice of dates settled in the transaction that makes its jobs.

Takes the gaps that ``services.gaps`` found. Repeating it after a crash at any point fills what is left and leaves what
is done alone: ``sql/functions/fill.sql`` decides by the row, under the pass lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduler.core.gaps import Gap, GapKind
from scheduler.core.models import OccurrenceState
from scheduler.storage.database import Connection, transaction
from scheduler.storage.queries import execute, fetch, fetch_value
from scheduler.storage.schedules import date_columns

SLICE_DATES = 2_000
DEFAULT_PRIORITY = 1_000
"""Larger than the priority of live jobs, so that these go first."""

_STATES = {
    GapKind.MISSING: None,
    GapKind.UNDECIDED: OccurrenceState.PLANNED,
    GapKind.MISSED: OccurrenceState.MISSED,
    GapKind.SKIPPED: OccurrenceState.SKIPPED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """Who asks, why and how. ``since``, ``until`` and ``schedules`` are kept as the person wrote them."""

    actor: str
    since: str
    until: str | None = None
    schedules: Sequence[str] | None = None
    reason: str | None = None
    priority: int = DEFAULT_PRIORITY
    is_overlap_allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResult:
    """``inserted`` and ``already`` count dates; ``key_taken`` are those whose key another job has."""

    id: int | None
    inserted: Sequence[Gap]
    already: int
    key_taken: Sequence[Gap]


@dataclass(frozen=True, slots=True)
class _Filled:
    schedule_id: int
    logical_date: datetime
    outcome: str


def fill_gaps(
    connection: Connection,
    gaps: Sequence[Gap],
    settled: int,
    request: BackfillRequest,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> BackfillResult:
    """Make a job for every gap, oldest first, in slices that are each one transaction.

    ``settled`` is how many dates of the range were done before and is reported as ``already``, together with those
    that somebody else settles meanwhile. Without gaps nothing is written.
    """
    if not gaps:
        return BackfillResult(id=None, inserted=(), already=settled, key_taken=())
    backfill_id = _begin(connection, gaps, request)
    inserted: list[Gap] = []
    key_taken: list[Gap] = []
    ordered = sorted(gaps, key=lambda gap: gap.logical_date)
    for start in range(0, len(ordered), SLICE_DATES):
        progress(start, len(ordered))
        piece = ordered[start : start + SLICE_DATES]
        outcomes = _fill(connection, backfill_id, piece, request)
        inserted += [gap for gap in piece if outcomes[gap.schedule_id, gap.logical_date] == "inserted"]
        key_taken += [gap for gap in piece if outcomes[gap.schedule_id, gap.logical_date] == "key_taken"]
    progress(len(ordered), len(ordered))
    execute(connection, "backfills_complete", {"id": backfill_id})
    return BackfillResult(
        id=backfill_id,
        inserted=inserted,
        already=settled + len(gaps) - len(inserted) - len(key_taken),
        key_taken=key_taken,
    )


def _begin(connection: Connection, gaps: Sequence[Gap], request: BackfillRequest) -> int:
    backfill_id: int = fetch_value(
        connection,
        "backfills_insert",
        {
            "actor": request.actor,
            "reason": request.reason,
            "schedules": None if request.schedules is None else list(request.schedules),
            "since": request.since,
            "until": request.until,
            "kinds": sorted({gap.kind.value for gap in gaps}),
            "priority": request.priority,
        },
    )
    return backfill_id


def _fill(
    connection: Connection, backfill_id: int, gaps: Sequence[Gap], request: BackfillRequest
) -> dict[tuple[int, datetime], str]:
    states = {_STATES[gap.kind] for gap in gaps}
    with transaction(connection):
        filled = fetch(
            connection,
            _Filled,
            "occurrences_fill",
            {
                "backfill_id": backfill_id,
                "states": [state.value for state in states if state is not None],
                "priority": request.priority,
                "is_overlap_allowed": request.is_overlap_allowed,
                "actor": request.actor,
                **date_columns([(gap.schedule_id, gap.expected) for gap in gaps]),
            },
        )
        outcomes = {(row.schedule_id, row.logical_date): row.outcome for row in filled}
        counts = list(outcomes.values())
        execute(
            connection,
            "backfills_count",
            {"id": backfill_id, "inserted": counts.count("inserted"), "already": counts.count("already")},
        )
    return outcomes

"""Backfill: turn gaps into jobs, each slice of dates settled in the transaction that makes its jobs.

Takes the gaps that ``services.gaps`` found. Repeating it after a crash at any point fills what is left and leaves what
is done alone: ``sql/functions/fill.sql`` decides by the row, under the pass lock. A backfill stays as an object that
can be listed, paused, resumed and cancelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from scheduler.core.gaps import Gap, GapKind
from scheduler.core.models import OccurrenceState
from scheduler.errors import ConfigError, NotFound
from scheduler.storage.backfills import (
    BackfillRow,
    NewBackfill,
    Steered,
    begin_backfill,
    complete_backfill,
    fill_dates,
    list_backfills,
    steer_backfill,
    usual_duration,
)
from scheduler.storage.database import Connection, transaction

SLICE_DATES = 2_000
DEFAULT_PRIORITY = 1_000
"""Larger than the priority of live jobs, so that these go first."""

_STATES = {
    GapKind.UNDECIDED: OccurrenceState.PLANNED,
    GapKind.MISSED: OccurrenceState.MISSED,
    GapKind.SKIPPED: OccurrenceState.SKIPPED,
    GapKind.WAIVED: OccurrenceState.WAIVED,
    GapKind.DEAD: OccurrenceState.ENQUEUED,
    GapKind.DONE: OccurrenceState.ENQUEUED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """Who asks, why and how. ``since``, ``until`` and ``schedules`` are kept as the person wrote them.

    ``payload`` is merged over the definition's. ``max_active`` bounds how many of these jobs run at once, where the
    schedule's overlap policy does not already allow only one.
    """

    actor: str
    since: str
    until: str | None = None
    schedules: Sequence[str] | None = None
    reason: str | None = None
    priority: int = DEFAULT_PRIORITY
    is_descending: bool = False
    is_overlap_allowed: bool = False
    is_rerun: bool = False
    max_active: int | None = None
    payload: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResult:
    """``already`` counts dates that need nothing, ``unfinished`` those whose job still waits or runs.

    ``key_taken`` are dates whose idempotency key another job has.
    """

    id: int | None
    inserted: Sequence[Gap]
    already: int
    unfinished: Sequence[Gap] = ()
    key_taken: Sequence[Gap] = ()


def fill_gaps(
    connection: Connection,
    gaps: Sequence[Gap],
    settled: int,
    request: BackfillRequest,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> BackfillResult:
    """Make a job for every gap, in slices that are each one transaction, oldest first unless descending.

    ``settled`` is how many dates of the range were done before and is reported as ``already``, together with those
    that somebody else settles meanwhile. Without gaps nothing is written.
    """
    if not gaps:
        return BackfillResult(id=None, inserted=(), already=settled)
    backfill_id = begin_backfill(connection, _recorded(gaps, request))
    by_outcome: dict[str, list[Gap]] = {"inserted": [], "already": [], "unfinished": [], "key_taken": []}
    done = 0
    for piece in _slices(gaps, is_descending=request.is_descending):
        progress(done, len(gaps))
        states = sorted({_STATES[gap.kind].value for gap in piece if gap.kind in _STATES})
        with transaction(connection):
            outcomes = fill_dates(connection, backfill_id, states, [(gap.schedule_id, gap.expected) for gap in piece])
        for gap in piece:
            by_outcome[outcomes[gap.schedule_id, gap.logical_date]].append(gap)
        done += len(piece)
    progress(done, len(gaps))
    complete_backfill(connection, backfill_id)
    return BackfillResult(
        id=backfill_id,
        inserted=by_outcome["inserted"],
        already=settled + len(by_outcome["already"]),
        unfinished=by_outcome["unfinished"],
        key_taken=by_outcome["key_taken"],
    )


def estimated_time(connection: Connection, gaps: Sequence[Gap]) -> timedelta | None:
    """How long the jobs of these gaps would run one after the other, by the usual duration of each schedule's.

    None when a schedule has not succeeded yet.
    """
    total = timedelta(0)
    for schedule_id, count in Counter(gap.schedule_id for gap in gaps).items():
        usual = usual_duration(connection, schedule_id)
        if usual is None:
            return None
        total += usual * count
    return total


def show_backfill(connection: Connection, backfill_id: int) -> BackfillRow:
    """One backfill and where its jobs stand. Raises NotFound."""
    found = list_backfills(connection, backfill_id=backfill_id)
    if not found:
        raise NotFound(f'there is no backfill {backfill_id}; "sched backfill list" shows them')
    return found[0]


def steer(connection: Connection, backfill_id: int, action: str, *, actor: str, reason: str | None = None) -> Steered:
    """Pause, resume or cancel: jobs that have not started are held, released or cancelled; running ones go on.

    Raises NotFound, and ConfigError when the action does not apply to the status the backfill has.
    """
    before = show_backfill(connection, backfill_id)
    with transaction(connection):
        steered = steer_backfill(connection, backfill_id, action, actor, reason)
    if steered.outcome == before.status:
        raise ConfigError(f"backfill {backfill_id} is {before.status}: there is nothing to {action}")
    return steered


def _recorded(gaps: Sequence[Gap], request: BackfillRequest) -> NewBackfill:
    return NewBackfill(
        actor=request.actor,
        reason=request.reason,
        schedules=request.schedules,
        since=request.since,
        until=request.until,
        kinds=sorted({gap.kind.value for gap in gaps}),
        priority=request.priority,
        is_descending=request.is_descending,
        is_overlap_allowed=request.is_overlap_allowed,
        is_rerun=request.is_rerun,
        max_active=request.max_active,
        payload=request.payload,
    )


def _slices(gaps: Sequence[Gap], *, is_descending: bool) -> Iterator[list[Gap]]:
    ordered = sorted(gaps, key=lambda gap: gap.logical_date, reverse=is_descending)
    for start in range(0, len(ordered), SLICE_DATES):
        yield ordered[start : start + SLICE_DATES]

"""Backfill: turn gaps into jobs, each slice of dates settled in the transaction that makes its jobs.

Takes the gaps that ``services.gaps`` found. Repeating it after a crash at any point fills what is left and leaves what
is done alone: ``sql/functions/fill.sql`` decides by the row, under the pass lock. A backfill stays as an object that
can be listed, paused, resumed and cancelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from scheduler.core.ledger.gaps import Gap, GapKind
from scheduler.core.models import OccurrenceState
from scheduler.errors import ConfigError, NotFound
from scheduler.services.collector import collector_paused
from scheduler.storage.backfills import (
    BackfillOutcome,
    BackfillRow,
    NewBackfill,
    act_on_backfill,
    begin_backfill,
    complete_backfill,
    fill_dates,
    list_backfills,
    packed_dates,
    usual_duration,
)
from scheduler.storage.database import Connection, transaction
from scheduler.storage.packing import Packed
from scheduler.storage.schedules import meet_tzdata

SLICE_DATES = 10_000
"""Of one transaction, which holds the pass lock: about 0.2 s, by which live firing may be delayed."""

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
    meet_tzdata(connection)
    backfill_id = begin_backfill(connection, _recorded(gaps, request))
    by_outcome: dict[str, list[Gap]] = {"inserted": [], "already": [], "unfinished": [], "key_taken": []}
    done = 0
    slices = _slices(gaps, is_descending=request.is_descending)
    with collector_paused(), ThreadPoolExecutor(1, "backfill") as packing:
        coming = packing.submit(next, slices, None)
        while (piece := coming.result()) is not None:
            progress(done, len(gaps))
            with transaction(connection):
                # Only now, so that the server has work before the other thread has the interpreter.
                coming = packing.submit(next, slices, None)
                left = fill_dates(connection, backfill_id, piece.states, piece.dates)
            _sort(piece.gaps, left, by_outcome)
            done += len(piece.gaps)
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


def change_backfill(
    connection: Connection, backfill_id: int, action: str, *, actor: str, reason: str | None = None
) -> BackfillOutcome:
    """Pause, resume or cancel: jobs that have not started are held, released or cancelled; running ones go on.

    Raises NotFound, and ConfigError when the action does not apply to the status the backfill has.
    """
    before = show_backfill(connection, backfill_id)
    with transaction(connection):
        result = act_on_backfill(connection, backfill_id, action, actor, reason)
    if result.outcome == before.status:
        raise ConfigError(f"backfill {backfill_id} is {before.status}: there is nothing to {action}")
    return result


def _recorded(gaps: Sequence[Gap], request: BackfillRequest) -> NewBackfill:
    return NewBackfill(
        actor=request.actor,
        reason=request.reason,
        schedules=request.schedules,
        since=request.since,
        until=request.until,
        kinds=sorted(kind.value for kind in _kinds(gaps)),
        priority=request.priority,
        is_descending=request.is_descending,
        is_overlap_allowed=request.is_overlap_allowed,
        is_rerun=request.is_rerun,
        max_active=request.max_active,
        payload=request.payload,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """Gaps of one transaction, packed; ``states`` are those that their rows may be in."""

    gaps: Sequence[Gap]
    states: Sequence[str]
    dates: Mapping[str, Packed]


def _slices(gaps: Sequence[Gap], *, is_descending: bool) -> Iterator[_Slice]:
    ordered = sorted(gaps, key=attrgetter("expected.occurrence.logical_date"), reverse=is_descending)
    for start in range(0, len(ordered), SLICE_DATES):
        piece = ordered[start : start + SLICE_DATES]
        yield _Slice(
            gaps=piece,
            states=sorted({_STATES[kind].value for kind in _kinds(piece) if kind in _STATES}),
            dates=packed_dates([(gap.schedule_id, gap.expected) for gap in piece]),
        )


def _sort(gaps: Sequence[Gap], left: Mapping[tuple[int, datetime], str], by_outcome: dict[str, list[Gap]]) -> None:
    if not left:
        by_outcome["inserted"] += gaps
        return
    for gap in gaps:
        by_outcome[left.get((gap.schedule_id, gap.logical_date), "inserted")].append(gap)


def _kinds(gaps: Sequence[Gap]) -> set[GapKind]:
    """By runs, because hashing an enum costs as much as all else done to a gap."""
    return {kind for kind, _ in groupby(gaps, attrgetter("kind"))}

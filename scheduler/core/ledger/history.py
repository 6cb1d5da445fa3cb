"""Which dates were expected of a schedule, under the revision in force at each of them.

A schedule's past keeps its rule: a logical date is judged by the revision whose ``(valid_from, valid_until]`` holds it.
The planner, gap checks, backfills and ``explain`` all ask here. Pure; see ``time.occurrences`` for one rule's dates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from scheduler.core.models import CatchupPolicy, Occurrence, Timing
from scheduler.core.time.occurrences import is_fixed, next_occurrences, occurrences_between, previous_occurrence

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionSpan:
    """A revision and the logical dates it is in force for: ``(valid_from, valid_until]``, None for no end."""

    revision: int
    valid_from: datetime
    valid_until: datetime | None
    timing: Timing
    grace: timedelta
    catchup: CatchupPolicy = CatchupPolicy.LATEST


class Expected(NamedTuple):
    """An expected date and the revision that expects it. A tuple, because there may be millions."""

    revision: int
    occurrence: Occurrence

    @property
    def wall_key(self) -> tuple[int, datetime, bool] | None:
        """Its identity by wall time: revision, wall and fold. None for rules in elapsed time."""
        wall = self.occurrence.wall
        return None if wall is None else (self.revision, wall, wall.fold == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All revisions of one schedule, oldest first, and how far back its dates are expected.

    ``applied_at`` is when it was first applied; ``ledger_from`` the date at or before which the ledger was pruned.
    """

    schedule_id: int
    name: str
    spans: tuple[RevisionSpan, ...]
    applied_at: datetime
    ledger_from: datetime | None = None

    @property
    def floor(self) -> datetime:
        """Nothing at or before this instant is expected: ``start`` of the newest revision, else the first apply."""
        start = self.spans[-1].timing.start
        begin = self.applied_at if start is None else start - _TICK
        return begin if self.ledger_from is None else max(begin, self.ledger_from)


def expected_between(history: History, after: datetime, until: datetime, limit: int | None = None) -> list[Expected]:
    """Expected dates with logical dates in ``(after, until]``, oldest first, at most ``limit``.

    ``start`` is the newest revision's: moved earlier it opens gaps, later it closes them. The data interval of the
    first date under a revision begins at the last date expected under the one before.
    """
    found: list[Expected] = []
    after = max(after, history.floor)
    for index, span in enumerate(history.spans):
        begin, end = _reach(history, index, after, until)
        if begin >= end:
            continue
        remaining = None if limit is None else limit - len(found)
        if remaining == 0:
            break
        dates = occurrences_between(_timing(history, span), begin, end, remaining)
        found += _joined(history, index, dates)
    return found


def fixed_revisions(history: History) -> frozenset[int]:
    """The revisions whose dates are what their wall times say, so that a moved one is found by its wall first."""
    return frozenset(span.revision for span in history.spans if is_fixed(span.timing))


def expected_ahead(history: History, after: datetime, count: int) -> list[Occurrence]:
    """The next ``count`` dates after an instant under the newest revision; fewer when it never fires again."""
    span = history.spans[-1]
    begin = max(after, history.floor, span.valid_from if len(history.spans) > 1 else after)
    dates = next_occurrences(_timing(history, span), begin, count)
    return [date for date in dates if span.valid_until is None or date.logical_date <= span.valid_until]


def revision_at(history: History, logical_date: datetime) -> RevisionSpan | None:
    """The revision in force at a logical date; the first reaches back to ``start``. None in a retirement."""
    for index, span in enumerate(history.spans):
        is_begun = index == 0 or span.valid_from < logical_date
        if is_begun and (span.valid_until is None or logical_date <= span.valid_until):
            return span
    return None


def _reach(history: History, index: int, after: datetime, until: datetime) -> tuple[datetime, datetime]:
    """The part of ``(after, until]`` that the revision at ``index`` is in force for."""
    span = history.spans[index]
    begin = after if index == 0 else max(after, span.valid_from)
    return begin, until if span.valid_until is None else min(until, span.valid_until)


def _timing(history: History, span: RevisionSpan) -> Timing:
    start = history.spans[-1].timing.start
    return span.timing if span.timing.start == start else replace(span.timing, start=start)


def _joined(history: History, index: int, dates: list[Occurrence]) -> list[Expected]:
    """Dates of one revision, the first one's interval begun at the last date of the revision before, if it is later."""
    span = history.spans[index]
    if index and dates and dates[0].interval_start <= span.valid_from:
        before = _last_before(history, index)
        if before is not None:
            dates = [dates[0]._replace(interval_start=before), *dates[1:]]
    revision = span.revision
    return [Expected(revision, date) for date in dates]


def _last_before(history: History, index: int) -> datetime | None:
    """The last date expected under the revisions before ``index``."""
    for earlier in range(index - 1, -1, -1):
        span = history.spans[earlier]
        begin, end = _reach(history, earlier, history.floor, history.spans[index].valid_from)
        found = previous_occurrence(_timing(history, span), end + _TICK)
        if found is not None and begin < found.logical_date <= end:
            return found.logical_date
    return None

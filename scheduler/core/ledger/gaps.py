"""What is missing from the ledger: expected dates compared with recorded ones. Pure; ``services.gaps`` loads both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from scheduler.core.ledger.history import Expected, History, fixed_revisions
from scheduler.core.models import JobStatus, OccurrenceState


class GapKind(StrEnum):
    """Why an expected date is a gap.

    ``missing``: no row. ``undecided``: planned and late. ``missed``. Asked for by name only: ``skipped``; ``waived``;
    ``dead``: its newest job is; ``done``: its job ended, for running it again.
    """

    MISSING = "missing"
    UNDECIDED = "undecided"
    MISSED = "missed"
    SKIPPED = "skipped"
    WAIVED = "waived"
    DEAD = "dead"
    DONE = "done"


DEFAULT_KINDS = frozenset({GapKind.MISSING, GapKind.UNDECIDED, GapKind.MISSED})
INCLUDABLE = (GapKind.SKIPPED, GapKind.DEAD, GapKind.WAIVED)

_KIND_OF_STATE = {
    OccurrenceState.PLANNED: GapKind.UNDECIDED,
    OccurrenceState.MISSED: GapKind.MISSED,
    OccurrenceState.SKIPPED: GapKind.SKIPPED,
    OccurrenceState.WAIVED: GapKind.WAIVED,
}


class Gap(NamedTuple):
    """An expected date that did not become a job. A tuple, because there may be millions."""

    schedule_id: int
    schedule: str
    kind: GapKind
    expected: Expected

    @property
    def logical_date(self) -> datetime:
        return self.expected.occurrence.logical_date


class Recorded(NamedTuple):
    """What the ledger says of a date, and where its newest job stands (None: no job, or not asked for)."""

    logical_date: datetime
    revision: int
    wall: datetime | None
    fold: bool
    state: OccurrenceState
    job_status: str | None = None


class Ledger:
    """Recorded dates of one schedule, found by instant or by wall: a date is settled if either is."""

    def __init__(self, history: History, rows: Iterable[Recorded]) -> None:
        self._fixed = fixed_revisions(history)
        self._by_instant: dict[datetime, Recorded] = {}
        self._by_wall: dict[tuple[int, datetime, bool], Recorded] = {}
        for recorded in rows:
            self._by_instant[recorded.logical_date] = recorded
            if recorded.wall is not None:
                self._by_wall[(recorded.revision, recorded.wall, recorded.fold)] = recorded

    def find(self, expected: Expected) -> Recorded | None:
        """What is recorded of an expected date; None when it has no row.

        Another tz database may have put another date of a fixed rule at its instant: its own row is that of its wall.
        """
        occurrence = expected.occurrence
        found = self._by_instant.get(occurrence.logical_date)
        if found is not None and (found.wall == occurrence.wall or expected.revision not in self._fixed):
            return found
        if self._by_wall and expected.wall_key is not None:
            return self._by_wall.get(expected.wall_key, found)
        return found


def compare(
    history: History, expected: Sequence[Expected], ledger: Ledger, now: datetime, kinds: frozenset[GapKind]
) -> tuple[int, list[Gap]]:
    """How many of the expected dates are settled, and those that are gaps of ``kinds``, oldest first.

    Dates that are not late yet (by the grace of their revision) and undecided count as neither. ``settled`` plus the
    gaps is what was expected. A gap found by its wall has the instant that is recorded: what fills it is that row. Two
    dates may have one row, one by its wall and one by its instant: that is one gap, and the other is settled with it.
    """
    settled = 0
    gaps: list[Gap] = []
    has_moved = False
    schedule_id, schedule, find = history.schedule_id, history.name, ledger.find
    missing, undecided = GapKind.MISSING, GapKind.UNDECIDED
    late_before = {span.revision: now - span.grace for span in history.spans}
    wanted = {kind.value for kind in kinds | ({GapKind.DEAD} if GapKind.DONE in kinds else set())}
    for date in expected:
        recorded = find(date)
        kind = missing if recorded is None else _kind(recorded)
        if (kind is missing or kind is undecided) and date.occurrence.due_at >= late_before[date.revision]:
            continue
        if kind._value_ in wanted:
            if recorded is not None and recorded.logical_date != date.occurrence.logical_date:
                date = date._replace(occurrence=date.occurrence._replace(logical_date=recorded.logical_date))
                has_moved = True
            gaps.append(Gap(schedule_id, schedule, kind, date))
        else:
            settled += 1
    if has_moved:
        rows = {gap.logical_date: gap for gap in reversed(gaps)}
        settled += len(gaps) - len(rows)
        gaps = [rows[instant] for instant in sorted(rows)]
    return settled, gaps


def _kind(recorded: Recorded) -> GapKind:
    if recorded.state is OccurrenceState.ENQUEUED:
        return GapKind.DEAD if recorded.job_status == JobStatus.DEAD else GapKind.DONE
    return _KIND_OF_STATE[recorded.state]

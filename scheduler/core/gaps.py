"""What is missing from the ledger: expected dates compared with recorded ones. Pure; ``services.gaps`` loads both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from scheduler.core.history import Expected
from scheduler.core.models import OccurrenceState


class GapKind(StrEnum):
    """Why an expected date is a gap: no row; planned and late; missed; skipped (asked for by ``--include``)."""

    MISSING = "missing"
    UNDECIDED = "undecided"
    MISSED = "missed"
    SKIPPED = "skipped"


DEFAULT_KINDS = frozenset({GapKind.MISSING, GapKind.UNDECIDED, GapKind.MISSED})

_KIND_OF_STATE = {
    OccurrenceState.PLANNED: GapKind.UNDECIDED,
    OccurrenceState.MISSED: GapKind.MISSED,
    OccurrenceState.SKIPPED: GapKind.SKIPPED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An expected date that did not become a job."""

    schedule_id: int
    schedule: str
    kind: GapKind
    expected: Expected

    @property
    def logical_date(self) -> datetime:
        return self.expected.occurrence.logical_date


class Ledger:
    """Recorded states of one schedule, found by instant or by wall: a date is settled if either is."""

    def __init__(self, rows: Iterable[tuple[datetime, int, datetime | None, bool, OccurrenceState]]) -> None:
        self._by_instant: dict[datetime, OccurrenceState] = {}
        self._by_wall: dict[tuple[int, datetime, bool], OccurrenceState] = {}
        for logical_date, revision, wall, fold, state in rows:
            self._by_instant[logical_date] = state
            if wall is not None:
                self._by_wall[(revision, wall, fold)] = state

    def state_of(self, expected: Expected) -> OccurrenceState | None:
        """The recorded state of an expected date; None when it has no row."""
        found = self._by_instant.get(expected.occurrence.logical_date)
        if found is None and expected.wall_key is not None:
            found = self._by_wall.get(expected.wall_key)
        return found


def compare(
    expected: Sequence[Expected],
    ledger: Ledger,
    now: datetime,
    graces: Mapping[int, timedelta],
    kinds: frozenset[GapKind],
) -> tuple[int, list[tuple[GapKind, Expected]]]:
    """How many of the expected dates are settled, and those that are gaps of ``kinds``, oldest first.

    Dates that are not late yet (by the grace of their revision) and undecided count as neither. ``settled`` plus the
    gaps is what was expected.
    """
    settled = 0
    gaps: list[tuple[GapKind, Expected]] = []
    for date in expected:
        state = ledger.state_of(date)
        is_undecided = state in (None, OccurrenceState.PLANNED)
        if is_undecided and now - date.occurrence.due_at <= graces[date.revision]:
            continue
        kind = GapKind.MISSING if state is None else _KIND_OF_STATE.get(state)
        if kind is not None and (kind in kinds):
            gaps.append((kind, date))
        else:
            settled += 1
    return settled, gaps

"""The planner: writes coming occurrences ahead of time, as far as the host's horizon asks.

All time arithmetic is in ``core``; this loads, computes, and writes in one short transaction that checks that the
schedule still is what the dates were computed from (``sql/functions/plan.sql``). Any number of planners may run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime

from scheduler.core.ledger.planning import LARGEST_MOVE, Horizon, extension, horizon_of, replanned
from scheduler.core.time.localtime import tz_version
from scheduler.storage.database import Connection, database_now, transaction
from scheduler.storage.queries import execute, fetch_value
from scheduler.storage.schedules import (
    DefinitionCache,
    PlannedSlice,
    Position,
    due_positions,
    histories,
    last_planned_wall,
    record_event,
    unplan_walls,
    use_tzdata,
    write_plan,
)

logger = logging.getLogger(__name__)

SLICE_DATES = 5_000
SLICE_SCHEDULES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """What one slice did. ``is_more_due`` says that another slice is wanted right away."""

    schedules: int = 0
    dates: int = 0
    is_more_due: bool = False


class Planner:
    """Extends the horizon of planned occurrences, a slice at a time."""

    def __init__(self, by: str = "planner") -> None:
        self._by = by
        self._cache = DefinitionCache()
        self._tzdata = tz_version()
        self._refused_tzdata: str | None = None

    def run_once(self, connection: Connection, now: datetime | None = None) -> PlanResult:
        """Plan one slice: at most ``SLICE_DATES`` dates of at most ``SLICE_SCHEDULES`` schedules.

        Does nothing while the database was planned with a newer tz database than this process has; that is logged.
        ``now`` is the database's clock unless a test or the simulation says otherwise.
        """
        now = now or database_now(connection)
        positions = due_positions(connection, now, SLICE_SCHEDULES)
        if not positions or not self._may_plan(connection):
            return PlanResult()
        horizon = horizon_of(fetch_value(connection, "state_host"), lambda: fetch_value(connection, "schedules_count"))
        for position in positions:
            if position.tzdata != self._tzdata:
                self._take_over(connection, position, now)
        current = [position for position in positions if position.tzdata == self._tzdata]
        if not current:
            return PlanResult(is_more_due=True, schedules=len(positions))
        slices = self._slices(connection, current, now, horizon)
        with transaction(connection):
            written = write_plan(connection, slices, tzdata=self._tzdata, now=now, by=self._by)
        dates = sum(len(piece.dates) for piece in slices if piece.position.id in written)
        is_more_due = any(piece.plan_at <= now for piece in slices) or len(slices) < len(positions)
        return PlanResult(
            schedules=len(written),
            dates=dates,
            is_more_due=bool(written) and (is_more_due or len(positions) == SLICE_SCHEDULES),
        )

    def _slices(
        self, connection: Connection, positions: list[Position], now: datetime, horizon: Horizon
    ) -> list[PlannedSlice]:
        found = histories(connection, [position.id for position in positions], self._cache)
        slices: list[PlannedSlice] = []
        remaining = SLICE_DATES
        for position in positions:
            if remaining <= 0:
                break
            piece = extension(found[position.id], position.planned_until, now, horizon, remaining)
            remaining -= len(piece.dates)
            slices.append(
                PlannedSlice(
                    position=position, planned_until=piece.planned_until, plan_at=piece.plan_at, dates=piece.dates
                )
            )
        return slices

    def _take_over(self, connection: Connection, position: Position, now: datetime) -> None:
        """Replace the planned dates of a schedule by those of our newer tz database, wall by wall.

        A decided wall is not planned again; one whose new instant has passed meanwhile is due now.
        """
        after = now - LARGEST_MOVE
        history = histories(connection, [position.id], self._cache)[position.id]
        with transaction(connection):
            execute(connection, "pass_lock_take")
            last_wall = last_planned_wall(connection, position.id, position.planned_until)
            removed = unplan_walls(connection, position, tzdata=self._tzdata, after=after)
            if removed is None:
                return
            dates = replanned(history, removed, after, now, position.planned_until, last_wall)
            taken_over = replace(position, tzdata=self._tzdata)
            piece = PlannedSlice(
                position=taken_over, planned_until=position.planned_until, plan_at=now, dates=dates.expected
            )
            write_plan(connection, [piece], tzdata=self._tzdata, now=now, by=self._by)
            if dates.moved:
                record_event(
                    connection,
                    "dates_moved",
                    actor=self._by,
                    schedule_id=position.id,
                    reason=f"tz database {position.tzdata} gave way to {self._tzdata}",
                    details={"moved": [[old.isoformat(), new.isoformat()] for old, new in dates.moved]},
                )

    def _may_plan(self, connection: Connection) -> bool:
        recorded = use_tzdata(connection, self._tzdata)
        if recorded == self._tzdata:
            return True
        if recorded != self._refused_tzdata:
            self._refused_tzdata = recorded
            logger.warning(
                "not planning: dates here were planned with tz database %s, and this process has %s; upgrade tzdata",
                recorded,
                self._tzdata,
                extra={"event": "tzdata_differs", "recorded": recorded, "own": self._tzdata},
            )
        return False

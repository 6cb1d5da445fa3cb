"""How far ahead a schedule is planned, and when to look again. Pure; the planner service writes what this says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from scheduler.core.history import Expected, History, expected_ahead, expected_between
from scheduler.core.models import Occurrence
from scheduler.core.occurrences import due_lead

NEVER = datetime(9999, 1, 1, tzinfo=UTC)
"""Position of a schedule that has no further dates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """How far ahead dates are written: for ``reach``, at least ``min_dates`` and at most ``max_dates`` of them."""

    reach: timedelta
    min_dates: int = 2
    max_dates: int | None = None


TICK_HORIZON = Horizon(reach=timedelta(minutes=10))
PG_CRON_HORIZON = Horizon(reach=timedelta(days=400), max_dates=2000)
HORIZONS = {"tick": TICK_HORIZON, "pg_cron": PG_CRON_HORIZON}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The next dates of one schedule: they move its position to ``planned_until``; look again at ``plan_at``."""

    dates: Sequence[Expected]
    planned_until: datetime
    plan_at: datetime


def extension(history: History, planned_until: datetime, now: datetime, horizon: Horizon, limit: int) -> Extension:
    """The dates after ``planned_until`` that the horizon asks for, oldest first, at most ``limit``.

    A schedule that is behind is caught up slice by slice, under the revisions that were in force. One whose rule has
    ended, or that is retired, moves to ``NEVER``.
    """
    ahead = expected_ahead(history, now, horizon.max_dates or horizon.min_dates)
    until = _until(ahead, now + due_lead(history.spans[-1].timing), horizon)
    is_last = len(ahead) < horizon.min_dates
    dates = expected_between(history, planned_until, until, limit)
    if len(dates) == limit:
        reached = dates[-1].occurrence.logical_date
        return Extension(dates=dates, planned_until=max(reached, planned_until), plan_at=now)
    if is_last:
        return Extension(dates=dates, planned_until=NEVER, plan_at=NEVER)
    reached = max(until, planned_until)
    again = now + horizon.reach / 2
    if horizon.max_dates is None:
        again = max(again, min(ahead[0].logical_date, reached - horizon.reach / 2))
    return Extension(dates=dates, planned_until=reached, plan_at=min(again, NEVER))


def _until(ahead: Sequence[Occurrence], now: datetime, horizon: Horizon) -> datetime:
    """Up to where dates are wanted: the reach, stretched to the least number of dates, cut to the greatest."""
    until = now + horizon.reach
    logical_dates = [date.logical_date for date in ahead]
    if len(logical_dates) < horizon.min_dates:
        return max([until, *logical_dates])
    until = max(until, logical_dates[horizon.min_dates - 1])
    if horizon.max_dates is not None and len(logical_dates) >= horizon.max_dates:
        until = min(until, logical_dates[horizon.max_dates - 1])
    return until

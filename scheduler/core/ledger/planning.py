"""How far ahead a schedule is planned, and when to look again. Pure; the planner service writes what this says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from scheduler.core.ledger.history import Expected, History, expected_ahead, expected_between
from scheduler.core.models import CatchupPolicy, Occurrence
from scheduler.core.time.occurrences import due_lead

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
MOST_PLANNED = 2_000_000
"""Planned rows of all schedules together, at most, where a horizon is bounded by a number of dates."""

LARGEST_MOVE = timedelta(days=2)
"""More than a release of the tz database moves a local time: zones have changed their day, never by two."""

FRESH_DATES = 100
"""So many dates to come are planned with each slice of a schedule that is behind."""

HORIZONS = {"tick": TICK_HORIZON, "pg_cron": PG_CRON_HORIZON}


def horizon_of(host: str, count_schedules: Callable[[], int]) -> Horizon:
    """The horizon of a host. Where it is bounded by dates, the more schedules there are, the fewer dates each has."""
    horizon = HORIZONS[host]
    if horizon.max_dates is None:
        return horizon
    share = MOST_PLANNED // max(1, count_schedules())
    return replace(horizon, max_dates=max(horizon.min_dates, min(horizon.max_dates, share)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The next dates of one schedule: they move its position to ``planned_until``; look again at ``plan_at``."""

    dates: Sequence[Expected]
    planned_until: datetime
    plan_at: datetime


def extension(history: History, planned_until: datetime, now: datetime, horizon: Horizon, limit: int) -> Extension:
    """The dates after ``planned_until`` that the horizon asks for, oldest first, at most ``limit``.

    A schedule that is behind is caught up slice by slice, under the revisions that were in force; its next dates to
    come are added to every slice, so that they are not late meanwhile, unless the newest must stand for the late ones.
    One whose rule has ended, or that is retired, moves to ``NEVER``.
    """
    ahead = expected_ahead(history, now, horizon.max_dates or horizon.min_dates)
    until = _until(ahead, now + due_lead(history.spans[-1].timing), horizon)
    is_last = len(ahead) < horizon.min_dates
    dates = expected_between(history, planned_until, until, limit)
    if len(dates) == limit:
        reached = dates[-1].occurrence.logical_date
        if history.spans[-1].catchup is not CatchupPolicy.LATEST:
            dates += expected_between(history, max(now, reached), until, FRESH_DATES)
        return Extension(dates=dates, planned_until=max(reached, planned_until), plan_at=now)
    if is_last:
        return Extension(dates=dates, planned_until=NEVER, plan_at=NEVER)
    reached = max(until, planned_until)
    if horizon.max_dates is None:
        again = max(now + horizon.reach / 2, min(ahead[0].logical_date, reached - horizon.reach / 2))
    else:
        again = now + (reached - now) / 2
    return Extension(dates=dates, planned_until=reached, plan_at=min(again, NEVER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """Dates to plan under a newer tz database, and those of them that moved: old and new instant."""

    expected: Sequence[Expected]
    moved: Sequence[tuple[datetime, datetime]]


def replanned(
    history: History,
    removed: Mapping[tuple[int, datetime, bool], datetime],
    after: datetime,
    now: datetime,
    planned_until: datetime,
    last_wall: datetime | None,
) -> Replanned:
    """The dates after ``after`` that take the place of the removed ones, by wall; and coming ones that are new.

    ``removed`` are the instants that planned walls had, by (revision, wall, fold). A date whose instant lay ahead and
    has passed under the newer data is due now. One that came after ``planned_until`` and now comes before is new: its
    wall is later than ``last_wall``, the last that was planned.
    """
    if last_wall is None:
        return Replanned(expected=(), moved=())
    ends = [*removed.values(), *([planned_until] if planned_until < NEVER else [])]
    if not ends:
        return Replanned(expected=(), moved=())
    last = max(ends)
    found = expected_between(history, after, last + LARGEST_MOVE)
    chosen: list[Expected] = []
    moved: list[tuple[datetime, datetime]] = []
    for date in found:
        wall = date.occurrence.wall
        old = removed.get(date.wall_key) if date.wall_key is not None else None
        instant = date.occurrence.logical_date
        is_new = now < instant <= last or (wall is not None and wall > last_wall and instant <= planned_until)
        if old is None and not is_new:
            continue
        if old is not None and old != instant:
            moved.append((old, instant))
        is_due_now = old is not None and old > now >= date.occurrence.due_at
        chosen.append(date._replace(occurrence=date.occurrence._replace(due_at=now)) if is_due_now else date)
    return Replanned(expected=chosen, moved=moved)


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

"""Gaps: expected dates against the ledger, over any range of history, without a ticker running.

Expected dates come from the revision in force at each logical date (``core.ledger.history``); a schedule that was
pruned is looked at from its ``ledger_from`` on. Filling is ``services.backfill``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from scheduler.core.ledger.gaps import DEFAULT_KINDS, Gap, GapKind, Ledger, Recorded, compare
from scheduler.core.ledger.history import History, expected_between
from scheduler.core.models import OccurrenceState
from scheduler.core.time.localtime import instant_of, local_clock
from scheduler.errors import ConfigError, NotFound
from scheduler.services.collector import collector_paused
from scheduler.storage.database import Connection, database_now
from scheduler.storage.schedules import DefinitionCache, histories, recorded_dates, schedule_ids

_TICK = timedelta(microseconds=1)
_ABOUT_JOBS = frozenset({GapKind.DEAD, GapKind.DONE})

Moment = date | datetime
"""As a person gives it: a local day (midnight), a naive local time, or an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRequest:
    """``[since, until)``, evaluated in each schedule's zone; ``until`` defaults to now. No schedules means all."""

    since: Moment
    until: Moment | None = None
    schedules: Sequence[str] | None = None
    kinds: frozenset[GapKind] = DEFAULT_KINDS


@dataclass(frozen=True, slots=True)
class ScheduleCounts:
    """How many dates of one schedule were expected, and how many of them are settled."""

    schedule: str
    expected: int
    settled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """``expected`` is ``settled`` plus the gaps; gaps are ordered by schedule, then by logical date.

    ``schedules`` has the counts of each schedule that was looked at, by name.
    """

    expected: int
    settled: int
    gaps: Sequence[Gap]
    ledger_from: dict[str, datetime]
    schedules: Sequence[ScheduleCounts] = ()


def find_gaps(
    connection: Connection, request: GapRequest, progress: Callable[[int, int], None] = lambda done, of: None
) -> GapReport:
    """Compare every expected date of the range with the ledger.

    ``progress`` is told how many schedules of how many are done. ``ledger_from`` names the schedules whose ledger was
    pruned inside the range. Raises NotFound for an unknown schedule, ConfigError for a range that makes no sense.
    """
    now = database_now(connection)
    cache = DefinitionCache()
    wanted = list(_histories(connection, request, cache))
    counts: list[ScheduleCounts] = []
    gaps: list[Gap] = []
    pruned: dict[str, datetime] = {}
    for done, history in enumerate(wanted):
        progress(done, len(wanted))
        after, until = _range(history, request, now)
        if history.ledger_from is not None and history.ledger_from > after:
            pruned[history.name] = history.ledger_from
        with collector_paused():
            settled_here, gaps_here = _compare(connection, history, after, until, now, request.kinds)
        counts.append(ScheduleCounts(history.name, settled_here + len(gaps_here), settled_here))
        gaps += gaps_here
    progress(len(wanted), len(wanted))
    return GapReport(
        expected=sum(each.expected for each in counts),
        settled=sum(each.settled for each in counts),
        gaps=gaps,
        ledger_from=pruned,
        schedules=counts,
    )


def _compare(
    connection: Connection, history: History, after: datetime, until: datetime, now: datetime, kinds: frozenset[GapKind]
) -> tuple[int, list[Gap]]:
    expected = expected_between(history, after, until)
    rows = recorded_dates(connection, history.schedule_id, after, until, with_jobs=bool(kinds & _ABOUT_JOBS))
    ledger = Ledger(
        history,
        (
            Recorded(row.logical_date, row.revision, row.wall, row.fold, OccurrenceState(row.state), row.job_status)
            for row in rows
        ),
    )
    return compare(history, expected, ledger, now, kinds)


def _histories(connection: Connection, request: GapRequest, cache: DefinitionCache) -> Iterator[History]:
    ids = schedule_ids(connection, request.schedules)
    unknown = [name for name in request.schedules or () if name not in ids]
    if unknown:
        raise NotFound(f'there is no schedule "{unknown[0]}"; "sched schedules list" shows them')
    found = histories(connection, ids.values(), cache)
    return (found[schedule_id] for _, schedule_id in sorted(ids.items()))


def _range(history: History, request: GapRequest, now: datetime) -> tuple[datetime, datetime]:
    """The range as ``(after, until]``, which is what everything inside works with."""
    timezone = history.spans[-1].timing.timezone
    since = _instant(request.since, timezone)
    until = now if request.until is None else _instant(request.until, timezone)
    if since >= until:
        raise ConfigError(f"the range is empty: since {request.since} is not before until {request.until or 'now'}")
    if until > now:
        raise ConfigError(f"until {request.until} lies in the future; dates to come are not gaps")
    return since - _TICK, until - _TICK


def _instant(moment: Moment, timezone: str) -> datetime:
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment
    wall = moment if isinstance(moment, datetime) else datetime.combine(moment, time())
    return instant_of(local_clock(timezone), wall)

"""The real planner, apply and ``sched.fire`` at moments of a test's choosing: no clock is waited for.

A tick here is what ``services.tick`` does: passes with slices of planning between them, until neither has anything
left to do. Each call uses a planner of its own, as a process that was started afresh would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from scheduler.core.models import Catchup, CatchupPolicy, Cron, Definition, DefinitionSet, Every, Timing
from scheduler.services import apply as apply_service
from scheduler.services import gaps as gaps_service
from scheduler.services.gaps import GapReport, GapRequest, find_gaps
from scheduler.services.planner import Planner
from scheduler.storage.database import Connection

ROUNDS = 10_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc(text: str) -> datetime:
    """An instant written like ``2026-03-02 08:00`` or with seconds."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def definition(name: str, rule: str | timedelta, *, catchup: str = "latest", **changes: Any) -> Definition:
    """A schedule by cron expression, or by interval and ``anchor``.

    ``timing``, ``grace`` and ``max_age`` reach into its parts; the owner is ``team`` unless given.
    """
    chosen = (
        Cron(expression=rule) if isinstance(rule, str) else Every(interval=rule, anchor=changes.pop("anchor", EPOCH))
    )
    late = {key: changes.pop(key) for key in ("grace", "max_age") if key in changes}
    return Definition(
        name=name,
        owner=changes.pop("owner", "team"),
        timing=Timing(name=name, rule=chosen, **changes.pop("timing", {})),
        job_type="test.noop",
        catchup=Catchup(policy=CatchupPolicy(catchup), **late),
        **changes,
    )


def apply_at(connection: Connection, now: datetime, *definitions: Definition, allow_retire: bool = False) -> None:
    """Apply these definitions, and only these, as if the database's clock read ``now``."""
    wanted = DefinitionSet(
        schedules={each.name: each for each in definitions},
        limits={},
        owners=frozenset(each.owner for each in definitions),
    )
    with _clock(apply_service, now):
        apply_service.apply_definitions(connection, wanted, actor="test", allow_retire=allow_retire)


def tick_at(connection: Connection, now: datetime, by: str = "tick") -> Counter[str]:
    """Fire and plan at ``now`` until nothing is left to do; counts of enqueued, skipped, missed and planned."""
    planner = Planner(by)
    total: Counter[str] = Counter()
    for _ in range(ROUNDS):
        row = connection.execute(
            "select enqueued, skipped, missed, is_more_due, outcome from sched.fire(%s, 5000, %s)", (now, by)
        ).fetchone()
        assert row is not None
        planned = planner.run_once(connection, now)
        total.update(enqueued=row[0], skipped=row[1], missed=row[2], planned=planned.dates)
        if row[4] == "busy" or not (row[3] or planned.schedules):
            return total
    raise AssertionError(f"the tick at {now} does not come to an end: {total}")


def gaps_at(connection: Connection, now: datetime, since: datetime, **request: Any) -> GapReport:
    """The gaps since a moment, looked for at ``now``."""
    with _clock(gaps_service, now):
        return find_gaps(connection, GapRequest(since=since, **request))


def fired(connection: Connection, name: str) -> list[datetime]:
    """The logical dates of a schedule that have a live job, oldest first."""
    rows = connection.execute(
        "select logical_date from sched.jobs where schedule = %s and origin = 'schedule' order by 1", (name,)
    ).fetchall()
    return [row[0] for row in rows]


def outcomes(connection: Connection, name: str) -> Counter[str]:
    """How many dates of a schedule have each state and reason, like ``missed coalesced``."""
    rows = connection.execute(
        """
        select concat_ws(' ', o.state, o.reason), count(*)
        from sched.occurrences o join sched.schedules s on s.id = o.schedule_id
        where s.name = %s group by 1
        """,
        (name,),
    ).fetchall()
    return Counter(dict(rows))


def finish_jobs(connection: Connection) -> int:
    """Claim and complete everything that can start, until nothing can; how many there were."""
    done = 0
    while rows := connection.execute(
        "select id, lease_token from sched.claim(array['default'], gen_random_uuid(), 500, '1 min') order by id"
    ).fetchall():
        ids, tokens = [row[0] for row in rows], [row[1] for row in rows]
        connection.execute(
            "select sched.complete(%s::bigint[], %s::uuid[], array_fill(null::jsonb, array[%s]))",
            (ids, tokens, len(ids)),
        )
        done += len(ids)
    return done


@contextmanager
def _clock(module: Any, now: datetime) -> Iterator[None]:
    with patch.object(module, "database_now", lambda connection: now):
        yield

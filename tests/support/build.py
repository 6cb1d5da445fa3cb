"""Rows as tests need them: schedules with policies, planned dates, jobs in a state. Plain inserts, no product code.

Who plans dates also lets passes look at all of history again, as ``sched.plan`` does (``sched.first_due``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from scheduler.storage.database import Connection

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass(kw_only=True)
class Policy:
    """The policies of a schedule; the defaults are the product's."""

    catchup: str = "latest"
    grace: timedelta = timedelta(minutes=2)
    max_age: timedelta = timedelta(days=7)
    overlap: str = "queue"
    on_final_failure: str = "continue"
    limit_key: str | None = None
    max_attempts: int = 5
    job_type: str = "test.noop"
    key_template: str = "{schedule}:{logical_date}"
    queue: str = "default"
    priority: int = 100
    payload: dict[str, Any] = field(default_factory=dict)


def add_schedule(
    connection: Connection,
    name: str = "s",
    policy: Policy | None = None,
    *,
    applied_at: datetime = NOON - timedelta(days=30),
    planned_until: datetime = NOON + timedelta(days=1),
) -> int:
    """A schedule with one revision and its overlap slot; returns its id."""
    chosen = policy or Policy()
    row = connection.execute(
        """
        insert into sched.schedules (name, owner, revision, applied_at, planned_until, plan_at)
        values (%s, 'test', 1, %s, %s, '9999-01-01') returning id
        """,
        (name, applied_at, planned_until),
    ).fetchone()
    assert row is not None
    schedule_id: int = row[0]
    connection.execute(
        """
        insert into sched.schedule_revisions (
          schedule_id, revision, valid_from, hash, definition, file, applied_by, job_type, payload, key_template, queue,
          priority, max_attempts, retry_base, retry_max, retry_jitter, limit_key, catchup, grace, max_age, overlap,
          on_final_failure)
        values (%(id)s, 1, %(applied_at)s, '', '{}', 'test.yaml', 'test', %(job_type)s, %(payload)s, %(key_template)s,
                %(queue)s, %(priority)s, %(max_attempts)s, '10 s', '1 hour', 0, %(limit_key)s, %(catchup)s, %(grace)s,
                %(max_age)s, %(overlap)s, %(on_final_failure)s)
        """,
        {**vars(chosen), "payload": Jsonb(chosen.payload), "id": schedule_id, "applied_at": applied_at},
    )
    connection.execute("insert into sched.limits (key, slots) values (sched.overlap_key(%s), 1)", (schedule_id,))
    return schedule_id


def plan_date(
    connection: Connection, schedule_id: int, logical_date: datetime, *, due_at: datetime | None = None
) -> datetime:
    """A planned occurrence whose interval began a minute before."""
    connection.execute("update sched.state set nothing_due_before = null where nothing_due_before is not null")
    connection.execute(
        """
        insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date)
        values (%s, 1, %s, %s, %s, %s)
        """,
        (schedule_id, logical_date, due_at or logical_date, logical_date - MINUTE, logical_date.date()),
    )
    return logical_date


def plan_dates(connection: Connection, schedule_id: int, first: datetime, count: int, step: timedelta = MINUTE) -> None:
    """``count`` planned occurrences, ``step`` apart."""
    connection.execute("update sched.state set nothing_due_before = null where nothing_due_before is not null")
    with connection.cursor() as cursor:
        cursor.execute(
            """
            insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date)
            select %(id)s, 1, d, d, d - %(step)s::interval, d::date
            from generate_series(%(first)s::timestamptz, %(last)s::timestamptz, %(step)s::interval) d
            """,
            {"id": schedule_id, "first": first, "last": first + step * (count - 1), "step": step},
        )


def fire(connection: Connection, now: datetime, limit: int = 5000) -> tuple[Any, ...]:
    """One pass at a given moment: outcome, enqueued, skipped, missed, is_more_due, next_due_at, decided_at."""
    row = connection.execute("select * from sched.fire(%s, %s, 'test')", (now, limit)).fetchone()
    assert row is not None
    return tuple(row)


def ledger(connection: Connection, schedule_id: int) -> list[tuple[datetime, str, str | None]]:
    """Logical date, state and reason of every occurrence, oldest first."""
    return connection.execute(
        "select logical_date, state, reason from sched.occurrences where schedule_id = %s order by logical_date",
        (schedule_id,),
    ).fetchall()


def jobs(connection: Connection, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of every job, in the order of their logical dates."""
    query = sql.SQL("select {} from sched.jobs order by logical_date, id").format(
        sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    )
    return connection.execute(query).fetchall()


def claim_all(connection: Connection, limit: int = 100) -> list[tuple[int, Any]]:
    """Claim for a fresh worker: id and lease token of each job."""
    return connection.execute(
        "select id, lease_token from sched.claim(array['default'], gen_random_uuid(), %s, '15 s')", (limit,)
    ).fetchall()


def complete(connection: Connection, job_id: int, token: Any) -> str:
    """Settle one job as succeeded; returns the outcome."""
    row = connection.execute(
        "select outcome from sched.complete(array[%s]::bigint[], array[%s]::uuid[], array['null'::jsonb])",
        (job_id, token),
    ).fetchone()
    assert row is not None
    outcome: str = row[0]
    return outcome

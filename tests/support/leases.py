"""Jobs and leases by plain SQL: what races are spelled with, without any product code in Python."""

from __future__ import annotations

import json
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

COMPLETE = "select outcome from sched.complete(%s::bigint[], %s::uuid[], %s::text[]::jsonb[])"
FAIL = "select outcome from sched.fail(%s::bigint[], %s::uuid[], %s::text[], %s::text[])"
HAND_BACK = "select outcome from sched.hand_back(%s::bigint[], %s::uuid[])"
BEAT = "select outcome from sched.heartbeat(%s::bigint[], %s::uuid[], '15 s')"
REAP = "select is_busy, retried, died, cancelled, admitted from sched.reap()"
OTHER_TOKEN = "00000000-0000-4000-8000-000000000000"


def add(connection: Connection, count: int = 1, limit_key: str | None = None, **columns: Any) -> list[int]:
    """Enqueue jobs and set columns of theirs; returns the ids."""
    ids = []
    for _ in range(count):
        row = connection.execute("select id from sched.enqueue('x', p_limit_key => %s)", (limit_key,)).fetchone()
        assert row is not None
        ids.append(row[0])
    for name, value in columns.items():
        connection.execute(
            psycopg.sql.SQL("update sched.jobs set {} = %s where id = any (%s)").format(psycopg.sql.Identifier(name)),
            (value, ids),
        )
    return ids


def claim(connection: Connection, lease: str = "15 s") -> tuple[list[int], list[str]]:
    """Claim all pending jobs; ids and tokens, by id."""
    rows = connection.execute(
        "select id, lease_token::text from sched.claim('{default}', gen_random_uuid(), 1000, %s) order by id", (lease,)
    ).fetchall()
    return [row[0] for row in rows], [row[1] for row in rows]


def expire(connection: Connection, *ids: int) -> None:
    """Let leases run out now."""
    connection.execute("update sched.jobs set lease_expires_at = clock_timestamp() where id = any (%s)", (list(ids),))


def outcomes(connection: Connection, statement: str, *parameters: Any) -> list[str]:
    """The first column of a statement's rows."""
    return [row[0] for row in connection.execute(statement, parameters).fetchall()]


def complete(connection: Connection, ids: list[int], tokens: list[str], results: Any = None) -> list[str]:
    """Complete these attempts; the answers."""
    texts = None if results is None else [json.dumps(result) for result in results]
    return outcomes(connection, COMPLETE, ids, tokens, texts)


def fail(connection: Connection, ids: list[int], tokens: list[str], outcome: str = "failed") -> list[str]:
    """Fail these attempts; the answers."""
    return outcomes(connection, FAIL, ids, tokens, [outcome] * len(ids), ["broken"] * len(ids))


def status(connection: Connection, job_id: int) -> tuple[str, int]:
    """State and attempt count of a job."""
    row = connection.execute("select status, attempt_count from sched.jobs where id = %s", (job_id,)).fetchone()
    assert row is not None
    return row[0], row[1]


def snapshot(connection: Connection) -> list[Any]:
    """All jobs and attempts, to see whether anything changed."""
    rows = connection.execute("select j::text from sched.jobs j order by id").fetchall()
    return [*rows, *connection.execute("select a::text from sched.attempts a order by job_id, number").fetchall()]


def entries_read(connection: Connection, table: str = "sched.jobs") -> int:
    """Rows of a table read by scanning it, and entries of its indexes, in this transaction."""
    row = connection.execute(
        """
        select pg_stat_get_xact_tuples_returned(%(table)s::regclass)
          + (select sum(pg_stat_get_xact_tuples_returned(i.indexrelid))
             from pg_index i where i.indrelid = %(table)s::regclass)
        """,
        {"table": table},
    ).fetchone()
    assert row is not None
    return int(row[0])


def pages_read(connection: Connection, statement: str, *parameters: Any) -> int:
    """Run a statement for its effect; how many pages it read, in memory or not. Planning is not counted."""
    row = connection.execute(f"explain (analyze, buffers, format json) {statement}".encode(), parameters).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def set_limit(connection: Connection, key: str, slots: int) -> None:
    """Make a limit."""
    connection.execute("insert into sched.limits (key, slots) values (%s, %s)", (key, slots))


def statuses(connection: Connection) -> list[str]:
    """States of all jobs, by id."""
    return [row[0] for row in connection.execute("select status from sched.jobs order by id").fetchall()]


def updates(connection: Connection) -> tuple[int, int]:
    """HOT updates and all updates of sched.jobs by this session."""
    row = connection.execute(
        """
        select pg_stat_get_xact_tuples_hot_updated('sched.jobs'::regclass),
               pg_stat_get_xact_tuples_updated('sched.jobs'::regclass)
        """
    ).fetchone()
    assert row is not None
    return row[0], row[1]

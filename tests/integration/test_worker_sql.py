"""``run: {sql: ...}``: bound parameters, one transaction with the completion, and nothing that ends it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from scheduler.handlers import HandlerRegistry
from scheduler.services.worker import Worker, WorkerSettings
from scheduler.storage.database import Database
from tests.support.working import RunningWorker, attempts_of, enqueue, job_row


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table public.output (id serial, text text, data jsonb)")
        yield connection


def run(
    dsn: str, sql: Any, payload: Any = None, environment: dict[str, str] | None = None, **columns: Any
) -> dict[str, Any]:
    """Run one sql job to its end and return its row."""
    job_id = enqueue(dsn, "run.sql", payload, run={"sql": sql}, **columns)
    settings = WorkerSettings(name="test", lease=timedelta(seconds=5))
    RunningWorker(Worker(Database(dsn), HandlerRegistry(), settings, environment or {}), drain=True).join()
    return job_row(dsn, job_id)


def test_several_statements_run_with_bound_parameters(database: str, connection: psycopg.Connection[Any]) -> None:
    evil = "'); drop table public.output; --"
    text = """
        insert into public.output (text) values (%(given)s);
        insert into public.output (text, data) select %(idempotency_key)s, %(payload)s from generate_series(1, 2)
    """
    row = run(database, {"text": text, "parameters": {"given": evil}}, {"a": evil}, idempotency_key="k:1")
    assert (row["status"], row["result"]) == ("succeeded", {"status": "INSERT 0 2", "row_count": 2}), row["last_error"]
    rows = connection.execute("select text, data from public.output order by id").fetchall()
    assert rows == [(evil, None), ("k:1", {"a": evil}), ("k:1", {"a": evil})]


def test_a_failing_statement_rolls_everything_back_and_quotes_no_data(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("create unique index on public.output (text)")
    row = run(
        database,
        "insert into public.output (text) values ('secret'); insert into public.output (text) values ('secret')",
    )
    assert row["last_error"].startswith("the SQL failed (23505): duplicate key")
    assert "secret" not in row["last_error"]
    assert connection.execute("select count(*) from public.output").fetchone() == (0,)


@pytest.mark.parametrize("text", ["commit", "rollback", "select 1; commit; begin", "commit; select 1"])
def test_a_text_that_ends_its_transaction_fails(database: str, connection: psycopg.Connection[Any], text: str) -> None:
    row = run(database, text)
    assert row["status"] == "scheduled"
    assert "ends its transaction" in row["last_error"]


def test_another_database_is_reached_by_the_name_of_a_variable(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    sql = {"text": "insert into public.output (text) values ('x')", "dsn_env": "OTHER_DSN"}
    assert run(database, sql, environment={"OTHER_DSN": database})["status"] == "succeeded"
    assert connection.execute("select text from public.output").fetchall() == [("x",)]
    assert "OTHER_DSN" in run(database, sql)["last_error"]


def test_a_statement_that_takes_too_long_is_cancelled(database: str, connection: psycopg.Connection[Any]) -> None:
    row = run(database, "select pg_sleep(60)", timeout=timedelta(milliseconds=300))
    assert attempts_of(database, row["id"])[0]["outcome"] == "timed_out"
    running = "select count(*) from pg_stat_activity where query like '%%pg_sleep(60)%%' and pid <> pg_backend_pid()"
    assert connection.execute(running + " and state = 'active'").fetchone() == (0,)

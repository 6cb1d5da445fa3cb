"""Runs SQL that a user wrote, for ``run: {sql: ...}``: bound parameters, one transaction, no way to end it inside.

Values are bound on the client side, because only so can one text hold several statements; they are quoted by libpq and
never become part of the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import ClientCursor
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from scheduler.errors import StorageError
from scheduler.storage.database import Connection, Database


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementResult:
    """What the last statement reported: ``INSERT 0 5`` and the number of rows."""

    status: str | None
    row_count: int


def run_statement(
    connection: Connection, text: str, parameters: Mapping[str, Any], timeout: timedelta | None
) -> StatementResult:
    """Run ``text`` in the open transaction of ``connection``; ``%(name)s`` stands for a parameter.

    A statement may take a second longer than ``timeout``, which the caller should have enforced by then. Raises
    StorageError when a statement fails, or when the text ends the transaction or begins another.
    """
    if timeout is not None:
        milliseconds = int(timeout.total_seconds() * 1000) + 1000
        connection.execute("select set_config('statement_timeout', %s, true)", (str(milliseconds),))
    began = _transaction_began(connection)
    try:
        with ClientCursor(connection) as cursor:
            cursor.execute(text, {name: _adapted(value) for name, value in parameters.items()})
            while cursor.nextset():
                pass
            result = StatementResult(status=cursor.statusmessage, row_count=max(0, cursor.rowcount))
    except psycopg.Error as error:
        raise StorageError(f"the SQL failed ({error.sqlstate or type(error).__name__}): {error}") from error
    if connection.info.transaction_status is not TransactionStatus.INTRANS or _transaction_began(connection) != began:
        raise StorageError("the SQL text ends its transaction: leave out begin, commit and rollback")
    return result


@contextmanager
def own_transaction(database: Database) -> Iterator[Connection]:
    """A transaction on a connection of its own, committed at the end of the block."""
    with database.connection() as connection, connection.transaction():
        yield connection


def _transaction_began(connection: Connection) -> Any:
    row = connection.execute("select transaction_timestamp()").fetchone()
    return None if row is None else row[0]


def _adapted(value: Any) -> Any:
    return Jsonb(value) if isinstance(value, dict | list) else value

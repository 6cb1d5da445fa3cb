"""The lab's schema: the product's own tables and functions under another name, made for one run and dropped after it.

Statements of the product name ``sched``; on connections of a ``LabDatabase`` that reads ``sched_lab``, so that the real
worker and the real functions run beside an installed product without touching it. The schema carries a mark, and
nothing without that mark is ever dropped. A lab that was killed leaves its schema; the next one removes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from scheduler.errors import StorageError
from scheduler.lab.statements import run, value
from scheduler.storage.database import Connection, Database, mapped_errors, transaction
from scheduler.storage.migrations import migrate

SCHEMA = "sched_lab"

_PRODUCT_SCHEMA = re.compile(r"\bsched(?=[.;])")


class LabDatabase(Database):
    """A database in which the product's schema is the lab's."""

    __slots__ = ()

    def connect(self) -> Connection:
        connection = Database.connect(self)
        connection.cursor_factory = _LabCursor
        return connection


class _LabCursor(psycopg.Cursor[Any]):
    """Names the lab's schema where a statement names the product's."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        return super().execute(in_lab(query) if isinstance(query, str) else query, params, **options)


def in_lab(text: str) -> str:
    """``text`` with the product's schema replaced by the lab's."""
    return _PRODUCT_SCHEMA.sub(SCHEMA, text)


@contextmanager
def lab_schema(database: Database) -> Iterator[LabDatabase]:
    """The lab's schema for the time of a ``with`` block; dropped at its end, however it ends.

    Raises StorageError when another lab is at work here, when a schema of that name exists that is not ours, when the
    user may not create schemas, and behind a pooler.
    """
    lab = LabDatabase(database.dsn)
    with lab.connection() as guard, mapped_errors():
        _require_session(guard)
        if not value(guard, "lab_lock"):
            raise StorageError("another lab is at work in this database: wait until it has ended")
        drop_schema(guard)
        try:
            _create_schema(guard)
            yield lab
        finally:
            with lab.connection() as connection, mapped_errors():
                drop_schema(connection)


def drop_schema(connection: Connection) -> None:
    """Drop the lab's schema if there is one. Raises StorageError for one that does not carry the lab's mark."""
    is_ours = value(connection, "lab_is_ours")
    if is_ours is None:
        return
    if not is_ours:
        raise StorageError(
            f"the schema {SCHEMA} exists and was not made by the lab: rename it, or use another database for the lab"
        )
    run(connection, "lab_drop")


def _require_session(connection: Connection) -> None:
    """The lab's lock belongs to its session, and it looks at sessions: behind a pooler neither is what it seems."""
    if value(connection, "session_pid") != connection.info.backend_pid:
        raise StorageError("the lab needs a direct connection: this address leads to a pooler")


def _create_schema(connection: Connection) -> None:
    with transaction(connection):
        migrate(connection)
        run(connection, "lab_mark")
        run(connection, "lab_tables")

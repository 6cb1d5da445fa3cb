"""Loads ``sql/`` and is the one module that runs it: every statement sent to the database has a name here.

Queries live in ``sql/queries/<subject>.sql`` under ``-- name: <name>`` lines; functions in ``sql/functions/``. Comments
are stripped, because psycopg reads ``%`` in comments too. The files are beside the package in a checkout and inside it
in a wheel.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from psycopg import Cursor
from psycopg.rows import scalar_row

from scheduler.storage.database import Connection, mapped_errors

Row = TypeVar("Row")

_NAME = re.compile(r"^-- name: ([a-z0-9_]+)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")


@cache
def sql_folder() -> Path:
    """The folder with migrations, functions and queries."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_data" / "sql", package.parent / "sql"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError("the sql/ folder is missing: the installation is incomplete")


@cache
def queries() -> Mapping[str, str]:
    """All named queries, comments stripped. Raises ValueError on a name used twice."""
    files = sorted((sql_folder() / "queries").glob("*.sql"))
    return named_statements("\n".join(file.read_text(encoding="utf-8") for file in files))


def named_statements(text: str) -> dict[str, str]:
    """The statements below each ``-- name:`` line of ``text``. Raises ValueError on a name used twice."""
    found: dict[str, str] = {}
    parts = _NAME.split(text)
    for name, statement in zip(parts[1::2], parts[2::2], strict=True):
        if name in found:
            raise ValueError(f"query {name} is defined twice")
        found[name] = _COMMENT.sub("", statement).strip().rstrip(";")
    return found


def execute(connection: Connection, name: str, parameters: Mapping[str, Any] | None = None) -> int:
    """Run a named query for its effect; returns how many rows it touched."""
    with mapped_errors():
        return connection.execute(queries()[name], parameters).rowcount


def fetch_values(connection: Connection, name: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
    """The first column of every row."""
    with mapped_errors(), connection.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(queries()[name], parameters).fetchall()


def fetch_value(connection: Connection, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """The first column of the first row, or None."""
    values = fetch_values(connection, name, parameters)
    return values[0] if values else None


def fetch(
    connection: Connection, row_type: type[Row], name: str, parameters: Mapping[str, Any] | None = None
) -> list[Row]:
    """Every row as a ``row_type``, whose fields are named like the columns."""
    with mapped_errors(), connection.cursor(row_factory=_rows_as(row_type)) as cursor:
        return cursor.execute(queries()[name], parameters).fetchall()


def _rows_as(row_type: type[Row]) -> Callable[[Cursor[Any]], Callable[[Sequence[Any]], Row]]:
    """psycopg's ``class_row`` with interned names, by which keyword arguments are found in half the time."""

    def factory(cursor: Cursor[Any]) -> Callable[[Sequence[Any]], Row]:
        names = [sys.intern(column.name) for column in cursor.description or ()]
        return lambda values: row_type(**dict(zip(names, values, strict=True)))

    return factory

"""Loads ``statements.sql``, the statements that only the lab has, and runs them.

They are apart from ``sql/queries`` because their tables exist only while a lab runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from scheduler.storage.database import Connection, mapped_errors
from scheduler.storage.queries import named_statements


@cache
def statements() -> Mapping[str, str]:
    """All statements of the lab by name."""
    return named_statements(Path(__file__).with_name("statements.sql").read_text(encoding="utf-8"))


def run(connection: Connection, name: str, **parameters: Any) -> None:
    """Run a statement for its effect."""
    with mapped_errors():
        connection.execute(statements()[name], parameters or None)


def rows(connection: Connection, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Every row of a statement."""
    with mapped_errors():
        return connection.execute(statements()[name], parameters or None).fetchall()


def value(connection: Connection, name: str, **parameters: Any) -> Any:
    """The first column of the first row, or None."""
    found = rows(connection, name, **parameters)
    return found[0][0] if found else None

"""Replaces a part of one of our SQL functions, to prove that a test of the right design can fail."""

from __future__ import annotations

from scheduler.storage.database import Connection


def replace_in(db: Connection, function: str, old: str, new: str) -> None:
    """Make a function again with a part of its text replaced."""
    row = db.execute("select pg_get_functiondef(oid) from pg_proc where proname = %s", (function,)).fetchone()
    assert row is not None
    assert old in row[0]
    db.execute(row[0].replace(old, new).encode())

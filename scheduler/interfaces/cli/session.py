"""From a command's flags to an open database: settings, the embedded server where there is no other, one connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from scheduler.config import Settings, read_settings
from scheduler.interfaces.cli.output import say

if TYPE_CHECKING:
    from scheduler.storage.database import Connection, Database
    from scheduler.storage.operating import By


def settings_of(context: typer.Context, dsn: str | None) -> Settings:
    """The settings of this command; ``--dsn`` after the command's name goes before the one in front of it."""
    return read_settings(dsn=dsn if dsn is not None else context.find_root().obj)


@contextmanager
def opened(
    context: typer.Context, dsn: str | None, *, needs_schema: bool = True, log_level: str = "warning"
) -> Iterator[Database]:
    """The database of this command, with logs of ``log_level`` (or SCHED_LOG) and above on stderr."""
    from scheduler.interfaces.cli.logs import log_to_stderr
    from scheduler.storage.access import open_database

    settings = settings_of(context, dsn)
    log_to_stderr(settings.log_level or log_level)
    with open_database(settings, needs_schema=needs_schema, say=say) as database:
        yield database


@contextmanager
def connected(context: typer.Context, dsn: str | None, *, needs_schema: bool = True) -> Iterator[Connection]:
    """One connection to the database of this command."""
    with opened(context, dsn, needs_schema=needs_schema) as database, database.connection() as connection:
        yield connection


def by(context: typer.Context, dsn: str | None, reason: str | None) -> By:
    """Who runs this command, and why."""
    from scheduler.storage.operating import By

    return By(actor=settings_of(context, dsn).actor, reason=reason)

"""The database of a command: the one it was told, or the embedded one, checked to have the schema this code knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from scheduler.config import Settings
from scheduler.errors import ConfigError, MigrationError
from scheduler.storage.database import Connection, Database, mapped_errors
from scheduler.storage.embedded import EmbeddedServer, find_directory
from scheduler.storage.migrations import has_own_functions, migrate, require_schema


@contextmanager
def open_database(
    settings: Settings, *, needs_schema: bool = True, say: Callable[[str], None] = lambda text: None
) -> Iterator[Database]:
    """The database to use for the time of a ``with`` block, which keeps an embedded server running.

    ``say`` is told where an embedded database is, and that it was migrated: that happens by itself there, because
    nobody else looks after it. Any other database is only checked. Driver errors inside the block come out as ours.

    Raises ConfigError for an address that is not understood, StorageError for a database that is unreachable or
    unfit, MigrationError for a schema that is missing, older or newer.
    """
    with mapped_errors():
        if settings.dsn is not None:
            _require_address(settings.dsn)
            database = Database(settings.dsn)
            if needs_schema:
                with database.connection() as connection:
                    require_schema(connection)
            yield database
            return
        directory = find_directory(settings.directory)
        say(f"embedded PostgreSQL in {directory}")
        with EmbeddedServer.open(directory) as server:
            _put_first_in_path(server.bin_dir)
            database = Database(server.dsn)
            if needs_schema:
                with database.connection() as connection:
                    _bring_up_to_date(connection, say)
            yield database


def _put_first_in_path(bin_dir: Path) -> None:
    """Let the commands of jobs find the client programs of this very server: ``pg_dump`` refuses a newer one."""
    os.environ["PATH"] = os.pathsep.join([str(bin_dir), *filter(None, [os.environ.get("PATH")])])


def _require_address(dsn: str) -> None:
    """Refuse what is no connection string. libpq's own message may quote all of it, with the password."""
    if "\0" in dsn:
        raise ConfigError("the database address contains a NUL character")
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        text = str(error).strip()
        reason = text.splitlines()[0] if "://" not in text and "%" not in text else "the URL is malformed"
        raise ConfigError(
            f"the database address is not understood ({reason}); write it like "
            '"postgresql://user@host:5432/name" or "host=localhost dbname=name"'
        ) from error
    for port in str(given.get("port") or "").split(","):
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f'the port "{port[:20]}" in the database address is not a number from 1 to 65535')


def _bring_up_to_date(connection: Connection, say: Callable[[str], None]) -> None:
    if _is_current(connection):
        return
    applied = migrate(connection)
    say(f"migrated the embedded database: {', '.join(applied) or 'functions renewed'}")


def _is_current(connection: Connection) -> bool:
    """False for a missing or older schema, or other functions; a newer schema is refused by ``migrate``."""
    try:
        require_schema(connection)
    except MigrationError:
        return False
    return has_own_functions(connection)

"""Creates and upgrades the schema: ``sql/migrations`` in order, then every function and view again, under a lock.

All of it is one transaction, so that a migration that fails leaves the database as it was, and a second ``migrate`` at
the same time waits and then finds nothing to do. Functions are ``create or replace``: a changed signature is a new
function. A schema newer than this code is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from scheduler.errors import MigrationError
from scheduler.storage.database import Connection, mapped_errors, transaction
from scheduler.storage.queries import execute, fetch, fetch_value, sql_folder

_LOCK_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file of ``sql/migrations``; the number in its name orders it."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """A row of ``sched.migrations``."""

    version: int
    name: str
    checksum: str


def migrate(connection: Connection) -> list[str]:
    """Bring the schema up to this version; returns the names of the migrations applied now, in order.

    Raises MigrationError for a schema newer than this code, or for a migration that was edited after it was applied.
    """
    with transaction(connection):
        execute(connection, "migrations_lock_timeout", {"timeout": _LOCK_TIMEOUT})
        execute(connection, "migrations_lock")
        applied = _applied(connection)
        pending = _pending(applied)
        with mapped_errors():
            for migration in pending:
                connection.execute(migration.text)
                execute(
                    connection,
                    "migrations_record",
                    {"version": migration.version, "name": migration.name, "checksum": migration.checksum},
                )
            for text in _function_texts():
                connection.execute(text)
        execute(connection, "migrations_record_functions", {"checksum": _functions_checksum()})
    return [migration.name for migration in pending]


def migration_script() -> str:
    """The whole schema as one script for ``psql``, for those who review what runs on their database."""
    parts = ["begin;", "set local check_function_bodies = off;"]
    for migration in _known_migrations():
        parts.append(f"-- {migration.name}\n{migration.text.strip()}")
        parts.append(
            "insert into sched.migrations (version, name, checksum) values "
            f"({migration.version}, '{migration.name}', '{migration.checksum}');"
        )
    parts += [text.strip() for text in _function_texts()]
    parts.append(f"update sched.state set functions = '{_functions_checksum()}';")
    return "\n\n".join([*parts, "commit;"]) + "\n"


def require_schema(connection: Connection) -> None:
    """Check that the schema is the one this code knows. Raises MigrationError that says what to run."""
    with mapped_errors():
        applied = _applied(connection)
    if not applied:
        raise MigrationError('the database has no sched schema yet; run "sched migrate"')
    if _pending(applied):
        raise MigrationError(
            f"the schema is at version {max(applied)}, and this sched needs {_known_migrations()[-1].version}; "
            'run "sched migrate"'
        )


def has_own_functions(connection: Connection) -> bool:
    """Whether the functions in the database are those of this version; other versions may be at work beside it."""
    return bool(fetch_value(connection, "migrations_functions") == _functions_checksum())


def _applied(connection: Connection) -> dict[int, AppliedMigration]:
    if not fetch_value(connection, "migrations_exist"):
        return {}
    return {row.version: row for row in fetch(connection, AppliedMigration, "migrations_list")}


def _pending(applied: dict[int, AppliedMigration]) -> list[Migration]:
    known = _known_migrations()
    newest = max(applied, default=0)
    if newest > known[-1].version:
        raise MigrationError(
            f"the schema is at version {newest}, newer than this sched knows ({known[-1].version}); upgrade sched-pg"
        )
    for migration in known:
        was = applied.get(migration.version)
        if was is not None and was.checksum != migration.checksum:
            raise MigrationError(
                f"migration {migration.name} is not the one that was applied to this database: it was made by a "
                "development version; use that version, or make a new database"
            )
    return [migration for migration in known if migration.version not in applied]


def _known_migrations() -> list[Migration]:
    files = sorted((sql_folder() / "migrations").glob("[0-9]*.sql"))
    return [_read_migration(file) for file in files]


def _read_migration(file: Path) -> Migration:
    number, _, _ = file.stem.partition("_")
    return Migration(version=int(number), name=file.stem, text=file.read_text(encoding="utf-8"))


def _function_texts() -> list[str]:
    files = sorted((sql_folder() / "functions").glob("*.sql"))
    return ["set local check_function_bodies = off;", *(file.read_text(encoding="utf-8") for file in files)]


def _functions_checksum() -> str:
    return hashlib.sha256("\n".join(_function_texts()).encode()).hexdigest()

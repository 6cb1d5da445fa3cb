"""The SQL itself: migrations, every named query explained, states equal to the code's, plans that use their index."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pglast
import psycopg
import pytest

from scheduler.core.models import (
    AttemptOutcome,
    CatchupPolicy,
    FinalFailurePolicy,
    JobStatus,
    OccurrenceState,
    OverlapPolicy,
)
from scheduler.errors import MigrationError
from scheduler.storage import migrations
from scheduler.storage.database import Connection
from scheduler.storage.migrations import migrate, migration_script, require_schema
from scheduler.storage.queries import queries, sql_folder
from tests.support.database import connect

PACKAGE = Path(migrations.__file__).parents[1]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


@pytest.mark.every_server
def test_migrating_twice_changes_nothing(database: str) -> None:
    with connect(database) as db:
        assert migrate(db) == []
        require_schema(db)


def test_two_migrations_at_once_are_safe(empty_database: str) -> None:
    def run(_: int) -> list[str]:
        with connect(empty_database) as own:
            return migrate(own)

    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(run, range(4)))
    assert sorted(len(names) for names in applied)[:3] == [0, 0, 0]
    known = [file.stem for file in sorted((sql_folder() / "migrations").glob("*.sql"))]
    assert [name for names in applied for name in names] == known


def test_the_printed_script_makes_the_same_schema(empty_database: str, db: Connection) -> None:
    with connect(empty_database) as own:
        own.execute(migration_script().encode())
        require_schema(own)
        assert own.execute(_COLUMNS).fetchall() == db.execute(_COLUMNS).fetchall()
        assert own.execute(_FUNCTIONS).fetchall() == db.execute(_FUNCTIONS).fetchall()


def test_a_newer_schema_is_refused_with_a_sentence(db: Connection) -> None:
    db.execute("insert into sched.migrations (version, name, checksum) values (9999, 'x', 'x')")
    try:
        with pytest.raises(MigrationError, match="version 9999, newer than this sched knows"):
            migrate(db)
        with pytest.raises(MigrationError, match="upgrade sched-pg"):
            require_schema(db)
    finally:
        db.execute("delete from sched.migrations where version = 9999")


def test_an_empty_database_is_told_to_migrate(empty_database: str) -> None:
    with connect(empty_database) as own, pytest.raises(MigrationError, match='run "sched migrate"'):
        require_schema(own)


def test_every_file_parses() -> None:
    for file in sorted(sql_folder().glob("*/*.sql")):
        text = file.read_text()
        pglast.parse_sql(re.sub(r"%\((\w+)\)[sb]", "null", text) if file.parent.name == "queries" else text)


@pytest.mark.every_server
def test_every_named_query_can_be_planned(database: str) -> None:
    with connect(database) as db:
        for name, text in queries().items():
            if name.startswith("pgcron_"):  # they need the extension; tests/integration/test_pgcron.py runs each
                continue
            parameters = dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", text))
            try:
                with db.transaction(force_rollback=True):
                    db.execute(f"explain {text}", parameters)
            except psycopg.errors.Error as error:
                pytest.fail(f"{name}: {error}")


def test_every_named_query_is_used_and_known() -> None:
    code = "\n".join(file.read_text() for file in PACKAGE.rglob("*.py"))
    assert [name for name in queries() if f'"{name}"' not in code] == []


STATES = {
    "jobs_status": JobStatus,
    "occurrences_state": OccurrenceState,
    "attempts_outcome": AttemptOutcome,
    "schedule_revisions_catchup": CatchupPolicy,
    "schedule_revisions_overlap": OverlapPolicy,
    "schedule_revisions_on_final_failure": FinalFailurePolicy,
}


@pytest.mark.parametrize("constraint", STATES)
def test_the_states_in_sql_are_those_of_the_code(db: Connection, constraint: str) -> None:
    row = db.execute("select pg_get_constraintdef(oid) from pg_constraint where conname = %s", (constraint,)).fetchone()
    assert row is not None
    assert set(re.findall(r"'(\w+)'::text", row[0])) == {state.value for state in STATES[constraint]}


def test_every_table_and_constraint_is_named_and_tables_are_commented(db: Connection) -> None:
    uncommented = db.execute(
        "select relname from pg_class where relnamespace = 'sched'::regnamespace and relkind = 'r'"
        " and obj_description(oid, 'pg_class') is null"
    ).fetchall()
    assert [row[0] for row in uncommented] == ["migrations"] or uncommented == []
    generated = db.execute(
        "select conname from pg_constraint where connamespace = 'sched'::regnamespace"
        " and conname ~ '_(check|key)[0-9]*$' and contype in ('c', 'u')"
    ).fetchall()
    assert generated == []


def test_the_committed_dump_is_the_migrated_schema(database: str) -> None:
    written = subprocess.run(
        [sys.executable, "-m", "tests.support.schema_dump", "--check", database],
        capture_output=True,
        text=True,
        check=False,
    )
    assert written.returncode == 0, written.stdout + written.stderr


_COLUMNS = """
    select table_name, column_name, data_type, column_default, is_nullable from information_schema.columns
    where table_schema = 'sched' order by 1, ordinal_position
"""
_FUNCTIONS = (
    "select proname, pg_get_functiondef(oid) from pg_proc where pronamespace = 'sched'::regnamespace order by 1, 2"
)

"""Databases for tests: real ones, cloned from a template that was migrated once per server and test process.

``database`` gives an empty migrated database of the default server, as a connection string. It is used again by the
next test after its rows were deleted (10 ms against 600 for a clone where files are slow), unless the test changed the
schema; then it is dropped. A test marked ``every_server`` gets it once for each PostgreSQL release on the machine.

The fixtures are registered in ``tests/conftest.py``. Servers start on first use and end with the test session; under
xdist each worker has its own. They run with fsync off: no test here may kill its server, those start one of their own.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from scheduler.storage.database import Connection, Database
from tests.support.cluster import Cluster, available_servers

TEMPLATE = "sched_template"
EMPTY = "template0"
SEEDED = {"migrations", "state"}  # the tables that are not empty after migrating
# Small, because several may run at once; more connections than PostgreSQL's default, for tests with many workers.
SETTINGS = {"max_connections": "200", "shared_buffers": "64MB", "max_wal_size": "256MB", "fsync": "off"}

_numbers = itertools.count(1)


def connect(dsn: str, *, autocommit: bool = True) -> Connection:
    """A connection as the product makes it, for a ``with`` block; each statement commits unless told otherwise."""
    connection = Database(dsn).connect()
    connection.autocommit = autocommit
    return connection


class Servers:
    """The servers of this test process by name, each started when first asked for."""

    def __init__(self) -> None:
        self._available = available_servers()
        self._started: dict[str, Cluster] = {}
        self._recycled: dict[str, Recycled] = {}
        self._stack = contextlib.ExitStack()

    def get(self, name: str) -> Cluster:
        """The running server of that name, with a migrated template database."""
        if name not in self._started:
            cluster = Cluster.start(self._available[name].bin_dir, settings=SETTINGS)
            self._started[name] = self._stack.enter_context(cluster)
            _make_template(cluster)
        return self._started[name]

    def recycled(self, name: str) -> Recycled:
        """The databases of that server that can be used again."""
        if name not in self._recycled:
            self._recycled[name] = Recycled(self.get(name))
        return self._recycled[name]

    def close(self) -> None:
        """End all of them."""
        self._stack.close()


class Recycled:
    """Migrated databases of one server that tests have finished with and left as the template is."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._free: list[str] = []
        self._fingerprint: str | None = None

    @contextlib.contextmanager
    def lend(self) -> Iterator[str]:
        """An empty migrated database; whatever is still connected to it afterwards is disconnected."""
        name = self._free.pop() if self._free else self._clone()
        yield self._cluster.dsn(name)
        with connect(self._cluster.dsn()) as connection:
            connection.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", (name,)
            )
        if self._clean(name):
            self._free.append(name)
        else:
            with connect(self._cluster.dsn()) as connection:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    def _clone(self) -> str:
        name = f"test_{next(_numbers)}"
        with connect(self._cluster.dsn()) as connection:
            connection.execute(
                sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(TEMPLATE))
            )
        if self._fingerprint is None:
            with connect(self._cluster.dsn(name)) as connection:
                self._fingerprint = _fingerprint(connection)
                seeded = _tables_with_rows(connection)
            assert seeded == SEEDED, f"migrations fill {seeded}: teach _DELETE_ROWS to restore them"
        return name

    def _clean(self, name: str) -> bool:
        """Delete every row and restart every sequence; False when the schema or a setting was changed."""
        with connect(self._cluster.dsn(name)) as connection:
            if _fingerprint(connection) != self._fingerprint:
                return False
            connection.execute(_DELETE_ROWS)
        return True


# Everything a test can change besides rows: relations, functions, constraints, triggers, extensions, settings.
_FINGERPRINT = """
select md5(string_agg(line, ',' order by line)) from (
  select 'class ' || oid from pg_class where oid >= 16384
  union all select 'proc ' || oid || ' ' || xmin from pg_proc where oid >= 16384
  union all select 'constraint ' || oid || ' ' || xmin from pg_constraint where oid >= 16384
  union all select 'trigger ' || oid || ' ' || xmin from pg_trigger
  union all select 'schema ' || nspname from pg_namespace where nspname not like 'pg_temp%%'
    and nspname not like 'pg_toast%%'
  union all select 'extension ' || extname from pg_extension
  union all select 'setting ' || setconfig::text from pg_db_role_setting s
    join pg_database d on d.oid = s.setdatabase where d.datname = current_database()
) as lines (line)
"""

_DELETE_ROWS = """
do $$
declare
  v_name text;
begin
  set local session_replication_role = replica;
  for v_name in
    select format('%I.%I', schemaname, tablename) from pg_tables
    where schemaname = 'sched' and tablename <> 'migrations'
  loop
    execute 'delete from ' || v_name;
  end loop;
  perform setval(c.oid::regclass, 1, false) from pg_class c
  where c.relkind = 'S' and c.relnamespace = 'sched'::regnamespace;
  insert into sched.state default values;
end
$$
"""


def _tables_with_rows(connection: Connection) -> set[str]:
    names = connection.execute("select tablename from pg_tables where schemaname = 'sched'").fetchall()
    count = sql.SQL("select count(*) from sched.{}")
    return {
        name
        for (name,) in names
        if connection.execute(count.format(sql.Identifier(name))).fetchone() not in (None, (0,))
    }


def _fingerprint(connection: Connection) -> str:
    row = connection.execute(_FINGERPRINT.replace("%%", "%")).fetchone()
    assert row is not None
    return str(row[0])


@contextlib.contextmanager
def cloned_database(cluster: Cluster, template: str = TEMPLATE) -> Iterator[str]:
    """A new database with the template's content, dropped afterwards with whatever is still connected to it."""
    name = f"test_{next(_numbers)}"
    with connect(cluster.dsn()) as connection:
        connection.execute(
            sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
        )
        yield cluster.dsn(name)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """All PostgreSQL servers of this test process."""
    every = Servers()
    try:
        yield every
    finally:
        every.close()


@pytest.fixture(scope="session")
def server_name() -> str:
    """The name of the server to use; a test marked ``every_server`` is given each name in turn."""
    return next(iter(available_servers()))


@pytest.fixture
def server(servers: Servers, server_name: str) -> Cluster:
    """A running server whose template database is migrated. Tests share it: don't stop it, start another one."""
    return servers.get(server_name)


@pytest.fixture
def database(servers: Servers, server_name: str) -> Iterator[str]:
    """The connection string of an empty, migrated database."""
    with servers.recycled(server_name).lend() as dsn:
        yield dsn


@pytest.fixture
def empty_database(server: Cluster) -> Iterator[str]:
    """The connection string of a fresh database in which nothing was migrated."""
    with cloned_database(server, EMPTY) as dsn:
        yield dsn


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "every_server: run on each PostgreSQL release on this machine")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked ``every_server`` once per release."""
    marked = metafunc.definition.get_closest_marker("every_server")
    if marked and "server_name" in metafunc.fixturenames:
        metafunc.parametrize("server_name", list(available_servers()), scope="session")


def _make_template(cluster: Cluster) -> None:
    from scheduler.storage.migrations import migrate

    with connect(cluster.dsn()) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
    with connect(make_conninfo(cluster.dsn(), dbname=TEMPLATE)) as connection:
        migrate(connection)

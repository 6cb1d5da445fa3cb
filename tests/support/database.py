"""Databases for tests: real ones, cloned from a template that was migrated once per server and test process.

``database`` gives a fresh migrated database of the default server, as a connection string. A test marked
``every_server`` gets it once for each PostgreSQL release on the machine. The fixtures are registered in
``tests/conftest.py``. Servers start on first use and end with the test session; under xdist each worker has its own.
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
# Small, because several may run at once; more connections than PostgreSQL's default, for tests with many workers.
SETTINGS = {"max_connections": "200", "shared_buffers": "64MB", "max_wal_size": "256MB"}

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
        self._stack = contextlib.ExitStack()

    def get(self, name: str) -> Cluster:
        """The running server of that name, with a migrated template database."""
        if name not in self._started:
            cluster = Cluster.start(self._available[name].bin_dir, settings=SETTINGS)
            self._started[name] = self._stack.enter_context(cluster)
            _make_template(cluster)
        return self._started[name]

    def close(self) -> None:
        """End all of them."""
        self._stack.close()


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
def database(server: Cluster) -> Iterator[str]:
    """The connection string of a fresh, migrated database."""
    with cloned_database(server) as dsn:
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

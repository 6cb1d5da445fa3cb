"""A server with pg_cron, its databases, and what is in ``cron.job``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from psycopg import sql

from scheduler.storage.migrations import migrate
from tests.support.cluster import Cluster
from tests.support.database import connect
from tests.support.require import pg_cron, require

SETTINGS = {"cron.database_name": "postgres", "fsync": "off", "shared_buffers": "64MB"}


@contextlib.contextmanager
def pg_cron_cluster(**settings: str) -> Iterator[Cluster]:
    """A server with the extension created in database postgres; the calling test is skipped where there is none."""
    require("pg_cron")
    binaries = pg_cron()
    assert binaries is not None
    with Cluster.start(binaries.bin_dir, settings=SETTINGS | settings, shared_preload="pg_cron") as cluster:
        with connect(cluster.dsn()) as connection:
            connection.execute("create extension pg_cron")
        yield cluster


def new_database(cluster: Cluster, name: str) -> str:
    """Make a migrated database; returns its address."""
    with connect(cluster.dsn()) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    dsn = dsn_of(cluster, name)
    with connect(dsn) as connection:
        migrate(connection)
    return dsn


def dsn_of(cluster: Cluster, database: str, *, user: str = "postgres") -> str:
    """The address of a database with any name."""
    escaped = database.replace("\\", "\\\\").replace("'", "\\'")
    return cluster.dsn(f"'{escaped}'", user=user)


def cron_rows(cluster: Cluster, columns: str = "jobname, schedule, command, database, username, active") -> list[Any]:
    """Every pg_cron job of the server, by name and role."""
    with connect(cluster.dsn()) as connection:
        return connection.execute(
            f"select {columns} from cron.job order by jobname, username, jobid".encode()
        ).fetchall()

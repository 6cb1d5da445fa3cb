"""Enqueuing on the connections that applications have: the job shares their transaction, whatever driver made it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pg8000.dbapi
import pg8000.native
import psycopg
import psycopg2
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from scheduler import ConfigError, Enqueued, NewJob, enqueue, enqueue_async, enqueue_many, enqueue_many_async
from scheduler.storage.migrations import migrate
from tests.support.cli import REPOSITORY, process_environment
from tests.support.cluster import Cluster
from tests.support.database import connect
from tests.support.drivers import (
    ASYNC_WAYS,
    WAYS,
    AsyncWay,
    Way,
    async_orm,
    engine_of,
    of_psycopg,
    of_psycopg2,
    pg8000_connection,
    pg8000_dbapi,
    sqlalchemy_orm,
    traced,
    url,
)
from tests.support.leases import Connection
from tests.support.pooler import transaction_pooler
from tests.support.require import require

PAYLOAD = {"text": "é \U0001f600 %s %(a)s %% :1 :a ? $1 '\" \\", "number": 1.5, "nothing": None}
ORDER = "insert into public.orders (id) values (1)"


@pytest.fixture
def one(database: str) -> Iterator[Connection]:
    """Another session, which sees what is committed; the application has a table of its own."""
    with connect(database) as connection:
        connection.execute("create table if not exists public.orders (id integer)")
        yield connection
        connection.execute("drop table public.orders")


def committed(connection: Connection) -> tuple[list[Any], int]:
    """Type, payload and key of every job, and how many orders there are."""
    jobs = connection.execute("select job_type, payload, idempotency_key from sched.jobs order by id").fetchall()
    row = connection.execute("select count(*) from public.orders").fetchone()
    assert row is not None
    return jobs, row[0]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_job_shares_the_transaction_of_the_application(database: str, one: Connection, way: Way) -> None:
    with way(database) as app:
        app.execute(ORDER)
        assert enqueue(app.connection, "mail", PAYLOAD).is_created
        app.rollback()
        assert committed(one) == ([], 0)

        assert enqueue(app.connection, "mail", PAYLOAD, idempotency_key="k").is_created
        app.execute(ORDER)
        assert committed(one) == ([], 0)
        app.commit()
        assert committed(one) == ([("mail", PAYLOAD, "k")], 1)

        answers = enqueue_many(app.connection, [NewJob("mail", idempotency_key=key) for key in ("k", "l")])
        assert [answer.is_created for answer in answers] == [False, True]
        app.rollback()
        assert committed(one)[0] == [("mail", PAYLOAD, "k")]


@pytest.mark.parametrize("way", ASYNC_WAYS.values(), ids=ASYNC_WAYS)
def test_so_does_an_asynchronous_one(database: str, one: Connection, way: AsyncWay) -> None:
    async def run() -> None:
        async with way(database) as app:
            await app.execute(ORDER)
            assert (await enqueue_async(app.connection, "mail", PAYLOAD)).is_created
            await app.rollback()
            assert committed(one) == ([], 0)

            assert (await enqueue_async(app.connection, "mail", PAYLOAD, idempotency_key="k")).is_created
            await app.execute(ORDER)
            assert committed(one) == ([], 0)
            await app.commit()
            assert committed(one) == ([("mail", PAYLOAD, "k")], 1)

            jobs = [NewJob("mail", idempotency_key=key) for key in ("k", "l")]
            answers = await enqueue_many_async(app.connection, jobs)
            assert [answer.is_created for answer in answers] == [False, True]
            await app.rollback()
            assert committed(one)[0] == [("mail", PAYLOAD, "k")]

    asyncio.run(run())


def test_sqlalchemys_own_bridge_to_synchronous_code_works_too(database: str) -> None:
    async def run() -> Enqueued:
        async with async_orm("postgresql+asyncpg")(database) as app:
            made: Enqueued = await app.connection.run_sync(enqueue, "mail", queue="slow")
            await app.commit()
            return made

    made = asyncio.run(run())
    with connect(database) as connection:
        assert connection.execute("select id, queue from sched.jobs").fetchall() == [(made.id, "slow")]


@pytest.mark.parametrize("style", ["format", "pyformat", "qmark", "numeric", "named"])
def test_placeholders_are_written_as_the_drivers_module_asks(
    database: str, one: Connection, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg8000.dbapi, "paramstyle", style)
    with pg8000_dbapi(database) as app:
        enqueue(app.connection, "mail", PAYLOAD)
        app.commit()
    assert committed(one)[0] == [("mail", PAYLOAD, None)]


def test_a_driver_we_do_not_know_is_asked_what_it_leads_to(
    database: str, one: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.storage.foreign._POSTGRESQL_DRIVERS", set())
    for way in (of_psycopg2(), pg8000_dbapi):
        with way(database) as app:
            enqueue(app.connection, "mail")
            app.commit()
    assert len(committed(one)[0]) == 2


def test_a_savepoint_of_the_application_takes_its_jobs_away(database: str, one: Connection) -> None:
    with engine_of(database, "postgresql+psycopg") as engine, Session(engine) as session:
        enqueue(session, "kept")
        nested = session.begin_nested()
        enqueue(session, "gone")
        nested.rollback()
        session.commit()
    assert [job[0] for job in committed(one)[0]] == ["kept"]


@pytest.mark.parametrize("autocommit", [False, True])
def test_autocommit_is_what_it_was(database: str, one: Connection, autocommit: bool) -> None:
    for connection in (psycopg.connect(database), psycopg2.connect(database), pg8000_connection(database)):
        connection.autocommit = autocommit
        enqueue(connection, "mail")
        assert connection.autocommit is autocommit
        connection.close()
    assert len(committed(one)[0]) == (3 if autocommit else 0)


def test_django_shares_its_atomic_blocks(database: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.django_shop", database],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=REPOSITORY,
        env=process_environment(),
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["autocommit"] is True
    assert "leads to sqlite, not to PostgreSQL" in said["sqlite"]
    with connect(database) as connection:
        jobs = connection.execute("select job_type, payload from sched.jobs order by id").fetchall()
    assert [job_type for job_type, _ in jobs] == [
        "autocommit", "committed", "many", "many", "driver connection", "cursor",
    ]  # fmt: skip
    assert jobs[1][1] == {"percent": "100 %s"}


@pytest.mark.parametrize(
    "way",
    [of_psycopg(), of_psycopg2(), pg8000_dbapi, sqlalchemy_orm("postgresql+psycopg")],
    ids=["psycopg", "psycopg2", "pg8000", "SQLAlchemy"],
)
def test_it_works_behind_a_pooler_in_transaction_mode(database: str, one: Connection, way: Way) -> None:
    require("pgbouncer")
    with (
        tempfile.TemporaryDirectory() as directory,  # not under pytest's, which PgBouncer's user may not enter
        transaction_pooler(database, Path(directory)) as through,
        way(through) as app,
        way(through) as other,
    ):
        for number in range(8):  # more than psycopg waits for before it prepares a statement
            for each in (app, other):
                enqueue(each.connection, "mail", {"number": number})
            other.rollback()
            app.commit()
    assert [job[1]["number"] for job in committed(one)[0]] == list(range(8))


def test_a_database_without_an_encoding_takes_every_character(server: Cluster) -> None:
    with connect(server.dsn()) as connection:
        create = "create database {} encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"
        connection.execute(sql.SQL(create).format(sql.Identifier("enqueue_ascii")))
    dsn = make_conninfo(server.dsn(), dbname="enqueue_ascii")
    with connect(dsn) as connection:
        migrate(connection)
    with psycopg.connect(dsn) as application:
        enqueue(application, "mail", PAYLOAD)
    with connect(dsn) as connection:
        assert connection.execute("select payload from sched.jobs").fetchall() == [(PAYLOAD,)]
    with connect(server.dsn()) as connection:
        connection.execute("drop database enqueue_ascii")


def closed(connection: Any) -> Any:
    connection.close()
    return connection


def lying_sqlite(_: str) -> sqlite3.Connection:
    """Answers ``version()`` as MySQL does."""
    connection = sqlite3.connect(":memory:")
    connection.create_function("version", 0, lambda: "8.0.35")
    return connection


def native(dsn: str) -> Any:
    parts: dict[str, Any] = conninfo_to_dict(dsn)
    return pg8000.native.Connection(parts["user"], parts["host"], parts["dbname"], int(parts["port"]))


def sqlite_session(_: str) -> Session:
    return Session(create_engine("sqlite://"))


def closed_sqlalchemy(dsn: str) -> Any:
    with engine_of(dsn, "postgresql+psycopg") as engine:
        return closed(engine.connect())


UNFIT = {
    "nothing": (lambda _: None, "a NoneType is not a database connection: pass a psycopg, SQLAlchemy, Django or"),
    "connection string": (lambda dsn: dsn, "a str is not a database connection"),
    "engine": (lambda dsn: create_engine(url(dsn, "postgresql+psycopg")), "Engine is not a database connection"),
    "pg8000.native": (native, "a pg8000.native.Connection is not a database connection"),
    "sqlite": (lambda _: sqlite3.connect(":memory:"), "is closed, or leads to no PostgreSQL (no such function"),
    "closed sqlite": (lambda _: closed(sqlite3.connect(":memory:")), "Cannot operate on a closed database"),
    "like MySQL": (lying_sqlite, "(sqlite3.Connection) leads to 8.0.35, not to PostgreSQL"),
    "SQLAlchemy sqlite": (sqlite_session, "leads to sqlite, not to PostgreSQL"),
    "closed psycopg": (lambda dsn: closed(psycopg.connect(dsn)), "the connection (psycopg.Connection) is closed"),
    "closed psycopg2": (lambda dsn: closed(psycopg2.connect(dsn)), "(psycopg2.extensions.connection) is closed"),
    "closed pg8000": (lambda dsn: closed(pg8000_connection(dsn)), "cannot be used: connection is closed"),
    "closed SQLAlchemy": (closed_sqlalchemy, "(sqlalchemy.engine.base.Connection) is closed"),
}


@pytest.mark.parametrize(("make", "message"), UNFIT.values(), ids=UNFIT)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_connection_that_is_not_fit_is_one_clear_error(database: str, make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as caught:
        enqueue(make(database), "mail")
    assert message in str(caught.value)


def test_an_asynchronous_connection_is_told_what_to_await(database: str) -> None:
    async def run() -> None:
        engine = create_async_engine(url(database, "postgresql+asyncpg"))
        bare = await asyncpg.connect(url(database, "postgresql"))
        async with await psycopg.AsyncConnection.connect(database) as connection, AsyncSession(engine) as session:
            for given in (connection, connection.cursor(), session, await session.connection(), bare):
                with pytest.raises(ConfigError, match="is asynchronous: await enqueue_async or enqueue_many_async"):
                    enqueue(given, "mail")
        await bare.close()
        await engine.dispose()

    asyncio.run(run())


def test_what_cannot_be_awaited_is_told_what_to_call(database: str) -> None:
    async def run() -> None:
        with psycopg.connect(database) as connection, engine_of(database, "postgresql+psycopg") as engine:
            for given in (connection, connection.cursor(), Session(engine), None, traced(of_psycopg())):
                with pytest.raises(ConfigError, match="is not an asynchronous connection: pass one of psycopg, SQL"):
                    await enqueue_async(given, "mail")
        async with asyncpg.create_pool(url(database, "postgresql"), min_size=0) as pool:
            with pytest.raises(ConfigError, match=r"asyncpg\.pool\.Pool is not an asynchronous connection"):
                await enqueue_async(pool, "mail")
            async with pool.acquire() as pooled:
                assert (await enqueue_async(pooled, "mail")).is_created
        async_closed = await psycopg.AsyncConnection.connect(database)
        await async_closed.close()
        bare = await asyncpg.connect(url(database, "postgresql"))
        await bare.close()
        for given in (async_closed, bare):
            with pytest.raises(ConfigError, match="is closed: pass an open one"):
                await enqueue_async(given, "mail")

    asyncio.run(run())

"""Connections as applications make them: by driver, by framework, with the cursors and rows they like.

Each way is a context manager from a connection string to an ``Application``: what is given to ``enqueue``, and how that
application writes, commits and rolls back. Nothing here is the product's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pg8000.dbapi
import psycopg
import psycopg.rows
import psycopg2
import psycopg2.extras
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker


@dataclass(frozen=True, slots=True)
class Application:
    """What is enqueued on, and the application's own statement, commit and rollback."""

    connection: Any
    execute: Callable[[str], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


@dataclass(frozen=True, slots=True)
class AsyncApplication:
    """The same, with awaitables."""

    connection: Any
    execute: Callable[[str], Awaitable[object]]
    commit: Callable[[], Awaitable[object]]
    rollback: Callable[[], Awaitable[object]]


Way = Callable[[str], AbstractContextManager[Application]]
AsyncWay = Callable[[str], AbstractAsyncContextManager[AsyncApplication]]


def url(dsn: str, driver: str) -> str:
    """A connection string as a URL of SQLAlchemy: ``url(dsn, "postgresql+psycopg2")``."""
    parts = conninfo_to_dict(dsn)
    return f"{driver}://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def pg8000_connection(dsn: str) -> Any:
    """A connection of pg8000, which knows no connection strings."""
    parts: dict[str, Any] = conninfo_to_dict(dsn)
    return pg8000.dbapi.connect(parts["user"], parts["host"], parts["dbname"], int(parts["port"]))


def of_psycopg(**options: Any) -> Way:
    """A connection of psycopg with a row factory or a cursor factory."""

    @contextmanager
    def way(dsn: str) -> Iterator[Application]:
        with psycopg.connect(dsn, **options) as connection:
            yield Application(connection, connection.execute, connection.commit, connection.rollback)

    return way


@contextmanager
def psycopg_cursor(dsn: str) -> Iterator[Application]:
    """A cursor of psycopg instead of its connection."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        yield Application(cursor, cursor.execute, connection.commit, connection.rollback)


def of_psycopg2(*, as_cursor: bool = False, **options: Any) -> Way:
    """A connection of psycopg2, or a cursor of it."""

    @contextmanager
    def way(dsn: str) -> Iterator[Application]:
        with closing(psycopg2.connect(dsn, **options)) as connection:
            cursor = connection.cursor()
            given = cursor if as_cursor else connection
            yield Application(given, cursor.execute, connection.commit, connection.rollback)

    return way


@contextmanager
def pg8000_dbapi(dsn: str) -> Iterator[Application]:
    """A connection of pg8000; what follows ``paramstyle`` of its module at that time."""
    with closing(pg8000_connection(dsn)) as connection:
        yield Application(connection, connection.cursor().execute, connection.commit, connection.rollback)


class Traced:
    """A connection as tracing tools wrap it: answers for what it holds, its class included."""

    def __init__(self, held: Any) -> None:
        self._held = held

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)


def traced(way: Way) -> Way:
    """The connection of another way, wrapped."""

    @contextmanager
    def wrapped(dsn: str) -> Iterator[Application]:
        with way(dsn) as app:
            yield Application(Traced(app.connection), app.execute, app.commit, app.rollback)

    return wrapped


@contextmanager
def engine_of(dsn: str, driver: str) -> Iterator[Engine]:
    """An engine of SQLAlchemy, its connections closed at the end."""
    engine = create_engine(url(dsn, driver))
    try:
        yield engine
    finally:
        engine.dispose()


def sqlalchemy_core(driver: str, *, is_raw: bool = False) -> Way:
    """A Connection of SQLAlchemy, or the driver's connection in it."""

    @contextmanager
    def way(dsn: str) -> Iterator[Application]:
        with engine_of(dsn, driver) as engine, engine.connect() as connection:
            if is_raw:
                connection.begin()
            given = connection.connection if is_raw else connection
            yield Application(given, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback)

    return way


def sqlalchemy_orm(driver: str, *, is_scoped: bool = False) -> Way:
    """A Session of SQLAlchemy."""

    @contextmanager
    def way(dsn: str) -> Iterator[Application]:
        with engine_of(dsn, driver) as engine:
            session: Any = scoped_session(sessionmaker(engine)) if is_scoped else Session(engine)
            with closing(session):
                yield Application(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)

    return way


@contextmanager
def sqlalchemy_pool(dsn: str) -> Iterator[Application]:
    """What the pool of SQLAlchemy lends."""
    with engine_of(dsn, "postgresql+psycopg2") as engine:
        connection = engine.raw_connection()
        with closing(connection):
            yield Application(connection, connection.cursor().execute, connection.commit, connection.rollback)


WAYS: dict[str, Way] = {
    "psycopg": of_psycopg(),
    "psycopg with dicts": of_psycopg(row_factory=psycopg.rows.dict_row),
    "psycopg with scalars": of_psycopg(row_factory=psycopg.rows.scalar_row),
    "psycopg with client cursors": of_psycopg(cursor_factory=psycopg.ClientCursor),
    "psycopg with raw cursors": of_psycopg(cursor_factory=psycopg.RawCursor),
    "psycopg cursor": psycopg_cursor,
    "psycopg traced": traced(of_psycopg()),
    "psycopg2": of_psycopg2(),
    "psycopg2 with dicts": of_psycopg2(cursor_factory=psycopg2.extras.RealDictCursor),
    "psycopg2 with names": of_psycopg2(cursor_factory=psycopg2.extras.NamedTupleCursor),
    "psycopg2 cursor": of_psycopg2(as_cursor=True),
    "psycopg2 traced": traced(of_psycopg2()),
    "pg8000": pg8000_dbapi,
    "pg8000 traced": traced(pg8000_dbapi),
    "SQLAlchemy pool": sqlalchemy_pool,
    "SQLAlchemy scoped session": sqlalchemy_orm("postgresql+psycopg", is_scoped=True),
}
for _driver in ("psycopg", "psycopg2", "pg8000"):
    WAYS[f"SQLAlchemy Connection, {_driver}"] = sqlalchemy_core(f"postgresql+{_driver}")
    WAYS[f"SQLAlchemy Session, {_driver}"] = sqlalchemy_orm(f"postgresql+{_driver}")
    WAYS[f"SQLAlchemy driver connection, {_driver}"] = sqlalchemy_core(f"postgresql+{_driver}", is_raw=True)


def of_async_psycopg(**options: Any) -> AsyncWay:
    """An asynchronous connection of psycopg."""

    @asynccontextmanager
    async def way(dsn: str) -> AsyncIterator[AsyncApplication]:
        async with await psycopg.AsyncConnection.connect(dsn, **options) as connection:
            yield AsyncApplication(connection, connection.execute, connection.commit, connection.rollback)

    return way


@asynccontextmanager
async def async_engine_of(dsn: str, driver: str) -> AsyncIterator[AsyncEngine]:
    """An asynchronous engine of SQLAlchemy, its connections closed at the end."""
    engine = create_async_engine(url(dsn, driver))
    try:
        yield engine
    finally:
        await engine.dispose()


def async_core(driver: str) -> AsyncWay:
    """An AsyncConnection of SQLAlchemy."""

    @asynccontextmanager
    async def way(dsn: str) -> AsyncIterator[AsyncApplication]:
        async with async_engine_of(dsn, driver) as engine, engine.connect() as connection:
            yield AsyncApplication(
                connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback
            )

    return way


def async_orm(driver: str, *, is_scoped: bool = False) -> AsyncWay:
    """An AsyncSession of SQLAlchemy."""

    @asynccontextmanager
    async def way(dsn: str) -> AsyncIterator[AsyncApplication]:
        async with async_engine_of(dsn, driver) as engine:
            session: Any = AsyncSession(engine)
            if is_scoped:
                session = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
            try:
                yield AsyncApplication(
                    session, lambda sql: session.execute(text(sql)), session.commit, session.rollback
                )
            finally:
                await session.close()

    return way


def of_asyncpg(*, is_pooled: bool = False) -> AsyncWay:
    """A connection of asyncpg, or what its pool lends, in a transaction."""

    @asynccontextmanager
    async def way(dsn: str) -> AsyncIterator[AsyncApplication]:
        async with asyncpg.create_pool(url(dsn, "postgresql"), min_size=1, max_size=1) as pool, pool.acquire() as lent:
            connection = lent if is_pooled else await asyncpg.connect(url(dsn, "postgresql"))
            try:
                await connection.execute("begin")
                yield AsyncApplication(
                    connection,
                    connection.execute,
                    lambda: connection.execute("commit; begin"),
                    lambda: connection.execute("rollback; begin"),
                )
            finally:
                await connection.execute("rollback")
                if not is_pooled:
                    await connection.close()

    return way


ASYNC_WAYS: dict[str, AsyncWay] = {
    "psycopg": of_async_psycopg(),
    "psycopg with dicts": of_async_psycopg(row_factory=psycopg.rows.dict_row),
    "asyncpg": of_asyncpg(),
    "asyncpg pool": of_asyncpg(is_pooled=True),
    "SQLAlchemy scoped session": async_orm("postgresql+psycopg", is_scoped=True),
}
for _driver in ("psycopg", "asyncpg"):
    ASYNC_WAYS[f"SQLAlchemy AsyncConnection, {_driver}"] = async_core(f"postgresql+{_driver}")
    ASYNC_WAYS[f"SQLAlchemy AsyncSession, {_driver}"] = async_orm(f"postgresql+{_driver}")

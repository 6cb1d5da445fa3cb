"""Runs a named query on a connection that an application made, with whatever driver, inside its transaction.

Never commits, rolls back, or changes a setting. ``fetch_on`` takes

- psycopg connections;
- SQLAlchemy's Session and Connection, so that it begins its transaction as for a statement of its own;
- Django's ``connection``;
- any other DB-API connection (PEP 249), with the placeholders that its driver's module asks for;

or a cursor or pool proxy of one of these. ``fetch_on_async`` takes async psycopg connections, SQLAlchemy's
AsyncSession and AsyncConnection, and asyncpg connections. The query has one parameter, ``jobs``, a text: so no driver
has to adapt anything. Whether a connection is fit is asked before the query is sent; after that, errors are the
driver's own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from scheduler.errors import ConfigError
from scheduler.storage.queries import queries

Rows = list[tuple[Any, ...]]

# By the paramstyles of PEP 249, and numeric_dollar, which is how SQLAlchemy and asyncpg call the server's own.
_PLACEHOLDERS = {
    "format": "%s",
    "pyformat": "%(jobs)s",
    "qmark": "?",
    "numeric": ":1",
    "numeric_dollar": "$1",
    "named": ":jobs",
}
_BY_NAME = {"pyformat", "named"}

# Drivers that speak to PostgreSQL only; with any other, the server is asked what it is.
_POSTGRESQL_DRIVERS = {"pg8000", "psycopg2", "psycopg2cffi"}

_WANTED = "pass a psycopg, SQLAlchemy, Django or other DB-API connection to PostgreSQL"


def fetch_on(connection: Any, name: str, document: str) -> Rows:
    """The rows of a named query on an application's connection. Raises ConfigError if that is not fit for it."""
    opened = _underlying(connection)
    if getattr(opened, "closed", False):
        raise _closed(connection)
    if isinstance(opened, psycopg.Connection):
        return _fetch_psycopg(opened, name, document)
    if hasattr(opened, "exec_driver_sql"):
        return _fetch_sqlalchemy(opened, name, document)
    if hasattr(opened, "vendor"):
        return _fetch_django(opened, name, document)
    return _fetch_dbapi(opened, name, document)


async def fetch_on_async(connection: Any, name: str, document: str) -> Rows:
    """The same on an asynchronous connection."""
    if isinstance(connection, psycopg.AsyncConnection):
        if connection.closed:
            raise _closed(connection)
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(*_bound(name, "pyformat", document), prepare=False)
            return await cursor.fetchall()
    if not hasattr(connection, "run_sync") and _is_async_session(connection):
        connection = await connection.connection()
    if hasattr(connection, "run_sync"):
        rows: Rows = await connection.run_sync(fetch_on, name, document)
        return rows
    if _package(connection) == "asyncpg" and hasattr(connection, "is_closed"):  # its pool has ``fetch`` as well
        if connection.is_closed():
            raise _closed(connection)
        statement, parameters = _bound(name, "numeric_dollar", document)
        return [tuple(row) for row in await connection.fetch(statement, *parameters)]
    raise ConfigError(
        f"a {_kind(connection)} is not an asynchronous connection: pass one of psycopg, SQLAlchemy or asyncpg, or call "
        f"enqueue or enqueue_many without await"
    )


def _underlying(connection: Any) -> Any:
    """What executes statements: a pool proxy's, a session's or a cursor's connection, or ``connection`` itself."""
    connection = getattr(connection, "driver_connection", None) or connection
    if hasattr(connection, "run_sync") or isinstance(connection, psycopg.AsyncConnection | psycopg.AsyncCursor):
        raise _asynchronous(connection)
    if hasattr(connection, "exec_driver_sql"):
        return connection
    if _package(connection) == "asyncpg" or _is_async_session(connection):
        raise _asynchronous(connection)
    if callable(getattr(connection, "connection", None)):
        return connection.connection()  # SQLAlchemy's Session, scoped or not
    if hasattr(connection, "execute") and not callable(getattr(connection, "cursor", None)):
        return getattr(connection, "connection", connection)
    return connection


def _is_async_session(connection: Any) -> bool:
    """Whether this is SQLAlchemy's AsyncSession, scoped or not."""
    return iscoroutinefunction(getattr(connection, "connection", None))


def _fetch_psycopg(connection: psycopg.Connection[Any], name: str, document: str) -> Rows:
    """With a cursor of our own class: the application's may give other rows, or want other placeholders.

    Never prepared, as it could be without being asked: a pooler might send the next one to another server process.
    """
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return cursor.execute(*_bound(name, "pyformat", document), prepare=False).fetchall()


def _fetch_sqlalchemy(connection: Any, name: str, document: str) -> Rows:
    dialect = connection.dialect
    if dialect.name != "postgresql":
        raise _not_postgresql(connection, dialect.name)
    statement, parameters = _bound(name, dialect.paramstyle, document)
    return [tuple(row) for row in connection.exec_driver_sql(statement, parameters)]


def _fetch_django(connection: Any, name: str, document: str) -> Rows:
    if connection.vendor != "postgresql":
        raise _not_postgresql(connection, connection.vendor)
    return _rows(connection, *_bound(name, "format", document))


def _fetch_dbapi(connection: Any, name: str, document: str) -> Rows:
    driver = _driver(connection)
    if driver is None or not callable(getattr(connection, "cursor", None)):
        raise ConfigError(f"a {_kind(connection)} is not a database connection: {_WANTED}")
    style = driver.paramstyle
    if _package(driver) not in _POSTGRESQL_DRIVERS:
        _require_postgresql(connection, driver)
    try:
        return _rows(connection, *_bound(name, style, document))
    except driver.InterfaceError as error:
        raise ConfigError(f"the connection ({_kind(connection)}) cannot be used: {error}") from error


def _require_postgresql(connection: Any, driver: ModuleType) -> None:
    try:
        ((version,),) = _rows(connection, queries()["server_version"], ())
    except driver.Error as error:
        raise ConfigError(
            f"the connection ({_kind(connection)}) is closed, or leads to no PostgreSQL ({error}): {_WANTED}"
        ) from error
    if not str(version).startswith("PostgreSQL"):
        raise _not_postgresql(connection, str(version))


def _rows(connection: Any, statement: str, parameters: Mapping[str, str] | Sequence[str]) -> Rows:
    """All rows as tuples, also when the application's cursors give mappings."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement, parameters)
        return [tuple(row.values() if isinstance(row, Mapping) else row) for row in cursor.fetchall()]
    finally:
        cursor.close()


def _bound(name: str, style: str, document: str) -> tuple[Any, Mapping[str, str] | tuple[str]]:
    """Statement and parameters of a named query in a paramstyle."""
    statement = queries()[name].replace("%(jobs)s", _PLACEHOLDERS[style])
    return statement, {"jobs": document} if style in _BY_NAME else (document,)


def _driver(connection: Any) -> ModuleType | None:
    """The driver's module: the first around the connection's class, or a base of it, that has a paramstyle.

    Asks ``__class__`` and not ``type``, so that the proxies which tracing puts around connections answer for those.
    """
    for base in connection.__class__.__mro__:
        place = base.__module__
        while place:
            module = sys.modules.get(place)
            if module is not None and getattr(module, "paramstyle", None) in _PLACEHOLDERS:
                return module
            place = place.rpartition(".")[0]
    return None


def _package(thing: Any) -> str:
    module: str = thing.__name__ if isinstance(thing, ModuleType) else thing.__class__.__module__
    return module.partition(".")[0]


def _kind(connection: Any) -> str:
    return f"{connection.__class__.__module__}.{connection.__class__.__qualname__}".removeprefix("builtins.")


def _not_postgresql(connection: Any, found: str) -> ConfigError:
    return ConfigError(f"the connection ({_kind(connection)}) leads to {found}, not to PostgreSQL: {_WANTED}")


def _closed(connection: Any) -> ConfigError:
    return ConfigError(f"the connection ({_kind(connection)}) is closed: pass an open one")


def _asynchronous(connection: Any) -> ConfigError:
    return ConfigError(
        f"the connection ({_kind(connection)}) is asynchronous: await enqueue_async or enqueue_many_async"
    )

"""Connections, transactions and the database's clock; driver errors become ours here, once.

Every connection is made by ``Database.connect``, so that all of them work behind PgBouncer in transaction mode: no
session state, no server-side prepared statements, UTF-8 whatever the server's encoding, and both TCP time-outs set.
It is in autocommit; services open transactions with ``transaction``. Must not contain a query: see ``queries``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.adapt import Buffer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import set_json_dumps

from scheduler.errors import ConfigError, SchedulerError, StorageError, TransientStorageError
from scheduler.storage.packing import Packed, PackedDumper

Connection = psycopg.Connection[Any]

MINIMUM_VERSION = 140000
APPLICATION_NAME = "sched"

FAR_FUTURE = datetime.max.replace(tzinfo=UTC)
FAR_PAST = datetime.min.replace(tzinfo=UTC)

_CONNECTION_DEFAULTS: dict[str, Any] = {
    "application_name": APPLICATION_NAME,
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class _UtcLoader(TimestamptzLoader):
    """Instants arrive in UTC whatever the session's zone; infinities as the ends of the calendar."""

    def load(self, data: Buffer) -> datetime:
        text = bytes(data)
        if text == b"infinity":
            return FAR_FUTURE
        if text == b"-infinity":
            return FAR_PAST
        return super().load(data).astimezone(UTC)


def _json_text(value: Any) -> str:
    """JSON with its characters as they are: a database without an encoding (SQL_ASCII) refuses their escapes."""
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Database:
    """Where the database is. Holds no connection."""

    dsn: str

    def connect(self) -> Connection:
        """A new connection in autocommit. The caller closes it.

        Raises StorageError with one sentence: the address is no conninfo string (ConfigError), nobody answers, the
        server is older than PostgreSQL 14.
        """
        try:
            given = conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError as error:
            raise ConfigError(
                f"the database address is not understood ({_first_line(error)}); write it like "
                f'"postgresql://user@host:5432/name"'
            ) from error
        with mapped_errors():
            connection: Connection = psycopg.connect(
                make_conninfo(**{**_CONNECTION_DEFAULTS, **given}), autocommit=True, prepare_threshold=None
            )
        connection.adapters.register_loader("timestamptz", _UtcLoader)
        connection.adapters.register_dumper(Packed, PackedDumper)
        set_json_dumps(_json_text, connection)
        version = connection.info.server_version
        if version < MINIMUM_VERSION:
            connection.close()
            raise StorageError(
                f"the server is PostgreSQL {version // 10000}, and sched needs {MINIMUM_VERSION // 10000} or newer"
            )
        return connection

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the time of a ``with`` block, closed afterwards."""
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def transaction(connection: Connection) -> Iterator[Connection]:
    """One transaction on a connection in autocommit: committed at the end, rolled back on any exception.

    Raises StorageError, or TransientStorageError when trying again may help.
    """
    with mapped_errors(), connection.transaction():
        yield connection


def database_now(connection: Connection) -> datetime:
    """The database's clock: the one clock that decisions use."""
    with mapped_errors():
        row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn driver errors into ours, most specific first; the cause is kept."""
    try:
        yield
    except SchedulerError:
        raise
    except (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, pg.AdminShutdown) as error:
        raise TransientStorageError(_first_line(error)) from error
    except pg.ReadOnlySqlTransaction as error:
        raise TransientStorageError("the server is read-only; it may have been replaced by another one") from error
    except (pg.InsufficientPrivilege, pg.ObjectNotInPrerequisiteState, pg.FeatureNotSupported) as error:
        raise StorageError(f"the database refuses this: {_first_line(error)}") from error
    except (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName) as error:
        raise StorageError(f'the schema is missing or too old ({_first_line(error)}); run "sched migrate"') from error
    except psycopg.OperationalError as error:
        raise TransientStorageError(f"the database is not reachable: {_first_line(error)}") from error
    except psycopg.Error as error:
        raise StorageError(f"the database reports: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """The driver's message without DETAIL, which may quote data, and without a second line."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__

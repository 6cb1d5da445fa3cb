"""JSON that PostgreSQL stores and Python does not read: whoever writes to ``sched.jobs`` by SQL may leave some there.

Such a value must not keep the other rows of an answer from being read, so an ``Unreadable`` stands in its place.
"""

from __future__ import annotations

from json import JSONDecoder
from typing import Any

from psycopg.types.json import set_json_loads

from scheduler.storage.database import Connection

_decode = JSONDecoder().raw_decode


class Unreadable(str):
    """Says, where the value would stand, why it cannot be read."""

    __slots__ = ()


def read_what_is_readable(connection: Connection) -> None:
    """Let the JSON of this connection arrive as values or ``Unreadable``.

    It is decoded as the server writes it, in UTF-8 and without spaces around: 1 us a job less than usual.
    """
    set_json_loads(_read, connection)


def _read(data: str | bytes) -> Any:
    try:
        return _decode(data if isinstance(data, str) else str(data, "utf-8"))[0]
    except RecursionError:
        return Unreadable("cannot be read: nested too deeply")
    except ValueError as error:  # a whole number of over 4,300 digits; bytes of a database without an encoding
        return Unreadable(f"cannot be read: {error}".partition(";")[0])

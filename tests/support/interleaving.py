"""Two connections, step by step: start a statement that must wait, see that it waits, then let it go on."""

from __future__ import annotations

import threading
from typing import Any, Self

import psycopg

from tests.support.wait import wait_for

PATIENCE = 20.0


class Waiting:
    """A statement running on ``connection`` in a thread; ``until_blocked`` sees it wait for a lock."""

    def __init__(self, connection: psycopg.Connection[Any], statement: str, parameters: Any = None) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(statement, parameters), daemon=True)
        self._thread.start()

    def until_blocked(self, observer: psycopg.Connection[Any]) -> Self:
        """Wait until it waits for a lock; ``observer`` is another connection, which may be in a transaction."""
        wait_for(lambda: self._is_blocked(observer), PATIENCE, "the statement to wait for a lock")
        return self

    def rows(self) -> list[Any]:
        """Wait for its end and return its rows; raises its error."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the statement does not end"
        if self._error is not None:
            raise self._error
        return self._rows

    def _run(self, statement: str, parameters: Any) -> None:
        try:
            self._rows = self._connection.execute(statement, parameters).fetchall()
        except BaseException as error:
            self._error = error

    def _is_blocked(self, observer: psycopg.Connection[Any]) -> bool:
        pid = self._connection.info.backend_pid
        row = observer.execute("select cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()
        return row is not None and bool(row[0])

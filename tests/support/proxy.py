"""A TCP proxy before a PostgreSQL server that can break a connection at a chosen statement."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from enum import Enum
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Cut(Enum):
    """When a connection breaks: the statement never arrives, or its answer never does."""

    BEFORE = "before the server gets the statement"
    AFTER = "after the server has answered"


class Proxy:
    """Forwards to the server of ``dsn``; ``dsn`` of the proxy leads through it. ``with`` ends it."""

    def __init__(self, dsn: str) -> None:
        parts = conninfo_to_dict(dsn)
        self._target = (str(parts["host"]), int(str(parts["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=self._listener.getsockname()[1])
        self._cut: tuple[bytes, Cut] | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.cuts = 0
        self.is_refusing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, text: str, when: Cut) -> None:
        """Break the next connection that sends ``text``, once."""
        self._cut = (text.encode(), when)

    def cut_all(self) -> None:
        """Break every open connection now."""
        with self._lock:
            broken, self._open = self._open, []
        for end in broken:
            _close(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.is_refusing = True
        _close(self._listener)
        self.cut_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_refusing:
                    _close(client)
                    continue
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open += [client, server]
                answer_lost = threading.Event()
                for work in (self._to_server, self._to_client):
                    threading.Thread(target=work, args=(client, server, answer_lost), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, answer_lost: threading.Event) -> None:
        def forward(data: bytes) -> bool:
            cut = self._taken_cut(data)
            if cut is Cut.BEFORE:
                return False
            if cut is Cut.AFTER:
                answer_lost.set()
            server.sendall(data)
            return True

        _copy(client, server, forward)

    def _to_client(self, client: socket.socket, server: socket.socket, answer_lost: threading.Event) -> None:
        def forward(data: bytes) -> bool:
            if answer_lost.is_set():  # the server has committed: its answer comes after that
                return False
            client.sendall(data)
            return True

        _copy(server, client, forward)

    def _taken_cut(self, data: bytes) -> Cut | None:
        with self._lock:
            if self._cut is None or self._cut[0] not in data:
                return None
            (_, when), self._cut = self._cut, None
            self.cuts += 1
            return when


def _copy(source: socket.socket, sink: socket.socket, forward: Callable[[bytes], bool]) -> None:
    with contextlib.suppress(OSError):
        while (data := source.recv(65536)) and forward(data):
            pass
    _close(source)
    _close(sink)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()

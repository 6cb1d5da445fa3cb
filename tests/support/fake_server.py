"""Things that answer on a PostgreSQL port and are not a usable PostgreSQL: too old, of another protocol, silent."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket], None]

SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
PATIENCE_SECONDS = 10.0


@contextlib.contextmanager
def fake_server(answer: Answer) -> Iterator[int]:
    """A server on a free port of 127.0.0.1 that treats every connection with ``answer``; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answer), daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def old_postgres(connection: socket.socket) -> None:
    """Greet as PostgreSQL 13."""
    while _startup_code(connection) in (SSL_REQUEST, GSS_REQUEST):
        connection.sendall(b"N")
    parameters = {"server_version": "13.14", "server_encoding": "UTF8", "client_encoding": "UTF8"}
    connection.sendall(_message(b"R", struct.pack("!I", 0)))
    for name, value in parameters.items():
        connection.sendall(_message(b"S", f"{name}\0{value}\0".encode()))
    connection.sendall(_message(b"K", struct.pack("!II", 1, 1)) + _message(b"Z", b"I"))
    connection.recv(1024)


def web_server(connection: socket.socket) -> None:
    """Speak HTTP."""
    connection.recv(1024)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def silent(connection: socket.socket) -> None:
    """Say nothing until the other side leaves."""
    while connection.recv(1024):
        pass


def _serve(listener: socket.socket, answer: Answer) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.settimeout(PATIENCE_SECONDS)
        with connection, contextlib.suppress(OSError, struct.error):
            answer(connection)


def _startup_code(connection: socket.socket) -> int:
    length, code = struct.unpack("!II", connection.recv(8))
    rest = length - 8
    while rest > 0:
        rest -= len(connection.recv(rest))
    return int(code)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body

"""Messages between a worker and the child process that runs a job: bytes with their length in front."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_LENGTH = struct.Struct("!I")


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._sending = threading.Lock()

    def send(self, message: bytes) -> None:
        """Send one message; any thread may. Raises ChannelClosed."""
        try:
            with self._sending:
                self.end.sendall(_LENGTH.pack(len(message)) + message)
        except OSError as error:
            raise ChannelClosed from error

    def receive(self) -> bytes:
        """Wait for the next message. Raises ChannelClosed."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return self._exactly(length)

    def close(self) -> None:
        """Close this end; a ``receive`` in another thread ends."""
        with contextlib.suppress(OSError):
            self.end.shutdown(socket.SHUT_RDWR)
        self.end.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                part = self.end.recv(size - len(received))
            except OSError as error:
                raise ChannelClosed from error
            if not part:
                raise ChannelClosed
            received += part
        return bytes(received)

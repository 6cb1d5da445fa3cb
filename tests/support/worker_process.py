"""Worker processes as users start them, with handlers that misbehave on request (tests/support/worker_app.py)."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.support.cli import COMMAND, process_environment
from tests.support.wait import wait_for

APP = "tests.support.worker_app"
PATIENCE = 30.0


class WorkerProcess:
    """One ``sched worker``; ``with`` kills it at the end if it still runs."""

    def __init__(self, dsn: str, directory: Path, *options: str, name: str = "worker") -> None:
        self._log = directory / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "worker", "--app", APP, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=process_environment({"SCHED_DSN": dsn}),
            )

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process."""
        self.process.send_signal(number)

    def wait_for_log(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait until it has logged ``text``."""
        wait_for(lambda: text in self.log, timeout, f'"{text}" in the log of the worker')

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def prepare(dsn: str) -> None:
    """The tables that the handlers write to and wait on."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """
            create table public.starts (job_id bigint, attempt integer, pid integer, at timestamptz default now());
            create table public.gates (attempt integer primary key)
            """
        )


def open_gate(dsn: str, attempt: int) -> None:
    """Let attempts with this number go on."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("insert into public.gates values (%s)", (attempt,))


def starts(dsn: str, job_id: int) -> list[tuple[int, int]]:
    """Attempt and process of every start of a handler for this job."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows: list[Any] = connection.execute(
            "select attempt, pid from public.starts where job_id = %s order by at", (job_id,)
        ).fetchall()
    return rows


def wait_for_start(dsn: str, job_id: int, attempt: int, timeout: float = PATIENCE) -> int:
    """Wait until this attempt's handler has begun; the process it runs in."""

    def found() -> int | None:
        return next((pid for number, pid in starts(dsn, job_id) if number == attempt), None)

    pid = wait_for(found, timeout, f"attempt {attempt} of job {job_id} to begin")
    assert pid is not None
    return pid


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def supervisors_of(pid: int) -> list[int]:
    """The process ids of the supervisors among the children of a process that ignore signals already."""
    children = [child for each in Path(f"/proc/{pid}/task").glob("*/children") for child in each.read_text().split()]
    return [int(child) for child in children if _is_supervisor(Path("/proc", child))]


def _is_supervisor(process: Path) -> bool:
    try:
        status, command = (process / "status").read_text(), (process / "cmdline").read_bytes()
    except OSError:  # it has ended
        return False
    ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
    is_ready = ignored is not None and int(ignored[1], 16) & 1 << (signal.SIGTERM - 1)
    return bool(is_ready) and b"sched-supervisor" in command

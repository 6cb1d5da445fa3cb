"""Running ``sched``: in this process for breadth, or as a real process where exit, signals and streams matter."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.interfaces.cli.main import run_command

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "scheduler.interfaces.cli.main")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout as the one JSON document it has to be."""
        return json.loads(self.out)


def sched(*arguments: str) -> Ended:
    """Run a command in this process; its logs and messages are captured."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(arguments)
    return Ended(code, out.getvalue(), err.getvalue())


def sched_process(
    *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: float = 60
) -> Ended:
    """Run a command as a process of its own and wait for its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=cwd,
        env=process_environment(environment),
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def start_sched(
    *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    """Start a command that runs until it is stopped; the caller ends it."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=process_environment(environment),
    )


def process_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, without settings of sched and PostgreSQL, with this repository on the module path."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SCHED_", "PG"))}
    kept = {name: os.environ[name] for name in ("SCHED_PG_BIN",) if name in os.environ}
    return ours | kept | {"PYTHONPATH": str(REPOSITORY)} | dict(more or {})


def write_definitions(folder: Path, text: str, name: str = "schedules.yaml") -> Path:
    """Write one definition file into ``folder``, with the usual head; returns the folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"version: 1\nowner: team\ndefaults: {{timezone: UTC}}\nschedules:\n{text}")
    return folder


DAILY = """\
  daily:
    cron: "0 2 * * *"
    start: 2024-01-01
    job: test.noop
"""
"""A schedule that should have run since the beginning of 2024."""

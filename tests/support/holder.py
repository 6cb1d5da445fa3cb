"""A process that holds a lease on an embedded server, for tests that need several of them, or to kill one.

The child needs nothing but the standard library and ``scheduler``, so that it also runs as a user who may not read
the virtual environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from scheduler.storage.account import Account
from scheduler.storage.binaries import Binaries

REPOSITORY = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from pathlib import Path
from scheduler.errors import SchedulerError
from scheduler.storage.embedded import EmbeddedServer
try:
    with EmbeddedServer.open(Path(sys.argv[1])) as server:
        print(server.dsn, flush=True)
        sys.stdin.read()
except SchedulerError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
# Orphans below this process become its children and, as it never asks for them, stay zombies when they end.
KEEP_ZOMBIES = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"


class Holder:
    """The process; ``with`` ends it if the test has not."""

    def __init__(
        self, directory: Path, *, binaries: Binaries, uid: int | None = None, path: str = "", script: str = HOLD
    ) -> None:
        """Begin to open ``directory``, as user ``uid`` and with ``path`` in front of PATH where they are given."""
        search = os.pathsep.join(filter(None, (path, os.environ.get("PATH", ""))))
        self._dsn = ""
        self.process = subprocess.Popen(
            [_python(uid), "-c", script, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": search, "PYTHONPATH": str(REPOSITORY), "SCHED_PG_BIN": str(binaries.bin_dir)},
            cwd="/",
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )

    def dsn(self) -> str:
        """Wait until the lease is held, and return the connection string."""
        assert self.process.stdout is not None
        self._dsn = self._dsn or self.process.stdout.readline().strip()
        assert self._dsn, f"no server: {self.error()}"
        return self._dsn

    def error(self) -> str:
        """What the process wrote on stderr until it ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().strip()

    def leave(self) -> None:
        """Let it give its lease back and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0, self.error()

    def kill(self) -> None:
        """End it by SIGKILL, without a chance to give anything back."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def _python(uid: int | None) -> str:
    """A Python that the user may run, and that can read this repository; skips the test if there is none."""
    if uid is None:
        return sys.executable
    account = Account(uid=uid, gid=uid)
    if not account.passes("-r", REPOSITORY / "scheduler" / "errors.py"):
        pytest.skip(f"user {uid} may not read {REPOSITORY}")
    system = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    for python in filter(None, (sys.executable, system)):
        probe = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if account.passes("-x", Path(python)) and account.run(probe, cwd="/").returncode == 0:
            return python
    pytest.skip(f"user {uid} may not run a Python of release 3.11 or later")

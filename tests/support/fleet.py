"""Real ``sched`` processes that are killed and come back: what a supervisor does, for tests that play the accident.

Each process writes to a file of its own in ``folder``, shown when something goes wrong. Only processes started here
are ever signalled.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from tests.support.cli import COMMAND, process_environment

STOP_SECONDS = 30.0
LAST_LINES = 15


class Fleet:
    """Processes by name. ``runner`` is the module whose ``main`` they run; the product's own unless given."""

    def __init__(self, dsn: str, folder: Path, *, runner: str | None = None) -> None:
        self._command = COMMAND if runner is None else (sys.executable, "-m", runner)
        self._environment = {"SCHED_DSN": dsn, "SCHED_ACTOR": "test"}
        self._folder = folder
        self._arguments: dict[str, tuple[str, ...]] = {}
        self._more: dict[str, Mapping[str, str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> int:
        """Start a process under a name; returns its id."""
        self._arguments[name] = arguments
        self._more[name] = environment or {}
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=process_environment({**self._environment, **self._more[name]}),
            )
        return self.pid(name)

    def pid(self, name: str) -> int:
        """The id of the process that has this name now."""
        return self._running[name].pid

    def has_ended(self, name: str) -> bool:
        """Whether the process has come to an end."""
        return self._running[name].poll() is not None

    def kill(self, *names: str) -> None:
        """SIGKILL these at once, and see that each was alive until then."""
        for name in names:
            assert self._running[name].poll() is None, f"{name} had ended by itself:\n{self.last_words(name)}"
        for name in names:
            self._running[name].kill()
        for name in names:
            assert self._running[name].wait(STOP_SECONDS) == -signal.SIGKILL, self.last_words(name)

    def restart(self, *names: str) -> None:
        """Start these again as they were started before."""
        for name in names:
            self.start(name, *self._arguments[name], environment=self._more[name])

    def wait(self, name: str, timeout: float) -> int:
        """Wait for the end of a process that ends by itself; returns its exit code, -9 when it was killed."""
        return self._running[name].wait(timeout)

    def stop(self, *names: str) -> None:
        """SIGTERM these and wait; each must end in good order."""
        for name in names:
            self._running[name].terminate()
        for name in names:
            assert self._running[name].wait(STOP_SECONDS) == 0, f"{name}:\n{self.last_words(name)}"

    def last_words(self, name: str) -> str:
        """The end of what a process wrote."""
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-LAST_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(STOP_SECONDS)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


@contextlib.contextmanager
def fleet(dsn: str, folder: Path, *, runner: str | None = None) -> Iterator[Fleet]:
    """A fleet whose processes are gone at the end of the block, whatever happened."""
    with Fleet(dsn, folder, runner=runner) as running:
        yield running

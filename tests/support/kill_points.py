"""Ends a real ``sched`` process by SIGKILL at a named point inside or between its transactions. Test code only.

``python -m tests.support.kill_points`` is a nursery: it loads the product once, puts a point behind every named query
and every commit, and then forks one process per request, which runs the command line it is given. At the n-th arrival
at its point the process notes that it got there and kills itself. The product knows nothing of this.

Points are named after the queries of ``sql/queries``: ``before fire``, ``after fire`` (its effect is there, not yet
committed), ``after commit of fire`` (the transaction whose last query it was). Only arrivals with an effect count: a
pass that fired, a plan that was written, a fill that inserted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.cli import process_environment
from tests.support.wait import wait_for

START_SECONDS = 60.0
BACKFILL_SLICE = 40


@dataclass(frozen=True, slots=True)
class Start:
    """What one process is to do: arguments of ``sched``, its environment, and where it ends."""

    arguments: list[str]
    environment: dict[str, str]
    log: str
    point: str | None
    arrival: int
    mark: str


class Nursery:
    """The mother process, seen from the test. Its children end by themselves, or by ``kill``."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder
        self._number = 0
        self._mother: subprocess.Popen[str] | None = None
        self._children: set[int] = set()

    def start(self, *arguments: str, point: str | None = None, arrival: int = 1) -> Victim:
        """Start one ``sched`` process that kills itself at the n-th arrival at ``point``."""
        self._number += 1
        mark = self._folder / f"mark-{self._number}"
        start = Start(
            arguments=list(arguments),
            environment={"SCHED_DSN": self._dsn, "SCHED_ACTOR": "victim"},
            log=str(self._folder / f"victim-{self._number}.log"),
            point=point,
            arrival=arrival,
            mark=str(mark),
        )
        pid = int(self._ask({"start": asdict(start)}))
        self._children.add(pid)
        return Victim(nursery=self, pid=pid, mark=mark, log=Path(start.log))

    def status(self, pid: int) -> int | None:
        """The exit code of a child, -9 when it was killed; None while it runs."""
        code: int | None = self._ask({"status": pid})
        if code is not None:
            self._children.discard(pid)
        return code

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._mother is not None and self._mother.stdin is not None and self._mother.stdout is not None
        self._mother.stdin.write(json.dumps(request) + "\n")
        self._mother.stdin.flush()
        answer = self._mother.stdout.readline()
        assert answer, f"the nursery ended: {(self._folder / 'nursery.log').read_text()}"
        return json.loads(answer)

    def __enter__(self) -> Self:
        with (self._folder / "nursery.log").open("wb") as log:
            self._mother = subprocess.Popen(
                [sys.executable, "-m", "tests.support.kill_points"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=process_environment(),
            )
        return self

    def __exit__(self, *exception: object) -> None:
        for pid in list(self._children):
            if self.status(pid) is None:
                os.kill(pid, signal.SIGKILL)  # a child of ours that nobody has waited for: its id is still its own
        assert self._mother is not None and self._mother.stdin is not None and self._mother.stdout is not None
        self._mother.stdin.close()
        self._mother.wait(START_SECONDS)
        self._mother.stdout.close()


@dataclass(frozen=True, slots=True)
class Victim:
    """A child of the nursery."""

    nursery: Nursery
    pid: int
    mark: Path
    log: Path

    @property
    def reached(self) -> str | None:
        """The point it noted before it ended; None if it did not get there."""
        return self.mark.read_text() if self.mark.exists() else None

    @property
    def has_ended(self) -> bool:
        return self.nursery.status(self.pid) is not None

    def kill(self) -> None:
        """SIGKILL, from outside."""
        assert self.nursery.status(self.pid) is None, f"it had ended by itself:\n{self.last_words}"
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = START_SECONDS) -> int:
        """Wait for its end; returns the exit code, -9 when it was killed."""
        codes: list[int] = []

        def ended() -> bool:
            code = self.nursery.status(self.pid)
            codes.extend([] if code is None else [code])
            return bool(codes)

        wait_for(ended, timeout, f"process {self.pid} to end; it wrote:\n{self.last_words}")
        return codes[0]

    @property
    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:]) if self.log.exists() else ""


def main() -> None:
    """The nursery: answers requests, one JSON document per line, until its input ends."""
    arrivals = Arrivals()
    _put_points(arrivals)
    statuses: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: int | None
        if "start" in request:
            answer = _fork(Start(**request["start"]), arrivals)
        else:
            pid = request["status"]
            if pid not in statuses:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    statuses[pid] = os.waitstatus_to_exitcode(status)
            answer = statuses.get(pid)
        print(json.dumps(answer), flush=True)


class Arrivals:
    """Counts arrivals at the one point that this process ends at."""

    def __init__(self) -> None:
        self._start: Start | None = None
        self._count = 0
        self._lock = threading.Lock()

    def expect(self, start: Start) -> None:
        self._start = start

    def at(self, point: str) -> None:
        """The process is at this point; it does not come back from the one it was waiting for."""
        if self._start is None or self._start.point != point:
            return
        with self._lock:
            self._count += 1
            if self._count < self._start.arrival:
                return
            Path(self._start.mark).write_text(point)
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait()


def _fork(start: Start, arrivals: Arrivals) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.update(start.environment)
        arrivals.expect(start)
        sys.argv = ["sched", *start.arguments]
        from scheduler.interfaces.cli.main import main as run

        run()
    except SystemExit as ended:
        sys.stdout.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(70)


def _put_points(arrivals: Arrivals) -> None:
    """Wrap what runs named queries and transactions, before the modules that use them are loaded."""
    from scheduler.storage import database, queries

    inside = threading.local()

    def wrap(run: Callable[..., Any], name_at: int) -> Callable[..., Any]:
        def run_with_points(*arguments: Any, **options: Any) -> Any:
            name = arguments[name_at]
            arrivals.at(f"before {name}")
            result = run(*arguments, **options)
            has_effect = _has_effect(name, result)
            if has_effect and getattr(inside, "names", None):
                inside.names[-1] = name
            if has_effect:
                arrivals.at(f"after {name}")
            return result

        return run_with_points

    def with_points(begin: Callable[[Any], contextlib.AbstractContextManager[Any]]) -> Callable[[Any], Any]:
        @contextlib.contextmanager
        def transaction(connection: Any) -> Iterator[Any]:
            names: list[str | None] = getattr(inside, "names", [])
            inside.names = [*names, None]
            try:
                with begin(connection) as opened:
                    yield opened
                name = inside.names[-1]
            finally:
                inside.names = names
            if name is not None:
                arrivals.at(f"after commit of {name}")

        return transaction

    for name, name_at in (("execute", 1), ("fetch_values", 1), ("fetch", 2)):
        setattr(queries, name, wrap(getattr(queries, name), name_at))
    setattr(database, "transaction", with_points(database.transaction))  # noqa: B010

    import scheduler.interfaces.cli.loops
    import scheduler.interfaces.cli.main
    import scheduler.services.backfill

    # Several slices out of a short range, so that there is a point between them.
    scheduler.services.backfill.SLICE_DATES = BACKFILL_SLICE


def _has_effect(name: str, result: Any) -> bool:
    if name == "fire":
        return bool(result[0].enqueued or result[0].missed or result[0].skipped)
    if name == "occurrences_fill":
        return bool(result[0].filled)
    return bool(result)


if __name__ == "__main__":
    main()

"""Loops side by side in one process, and following a folder of definition files. Used by tick and up.

Each loop is a thread with connections of its own. The first that fails stops the others, and its error is raised.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scheduler.errors import ConfigError, DefinitionError, SchedulerError
from scheduler.interfaces.cli.changes import describe_changes
from scheduler.interfaces.cli.output import say, sentences
from scheduler.interfaces.cli.pgcron import keep_planned, plan_to_horizon
from scheduler.services.apply import apply_definitions
from scheduler.services.definitions import SUFFIXES, load_definitions
from scheduler.services.loop import run_every
from scheduler.services.planner import Planner
from scheduler.services.tick import Ticker
from scheduler.storage.database import Connection, Database

logger = logging.getLogger(__name__)

Loop = Callable[[threading.Event], object]

FOLLOW_INTERVAL = timedelta(seconds=2)
ABORT_PATIENCE_SECONDS = 2.0


def process_name(role: str) -> str:
    """How a process of ours signs its decisions: ``tick:host:pid``."""
    return f"{role}:{socket.gethostname()}:{os.getpid()}"


def new_ticker() -> Ticker:
    """A ticker that signs with the name of this process."""
    by = process_name("tick")
    return Ticker(Planner(by=by), by=by)


class Follower:
    """Applies a folder of definition files, again whenever one of them changed.

    Files that do not load or may not be applied are reported and leave the database as it was.
    """

    def __init__(self, folder: Path, actor: str) -> None:
        self._folder = folder
        self._actor = actor
        self._seen: frozenset[tuple[str, int, int]] | None = None

    def apply(self, connection: Connection) -> None:
        """Apply now. Raises DefinitionError or ConfigError when the files cannot be applied."""
        self._seen = self._look()
        definitions = load_definitions(self._folder, today=datetime.now(UTC).date())
        for line in describe_changes(apply_definitions(connection, definitions, actor=self._actor).changes):
            say(line)
        plan_to_horizon(connection)

    def apply_if_changed(self, connection: Connection) -> None:
        """Apply if a file changed since the last time; problems are reported once per change."""
        if self._look() == self._seen:
            return
        try:
            self.apply(connection)
        except (DefinitionError, ConfigError) as error:
            for line in sentences(error):
                say(line)
            say("the definitions applied before stay in force")

    def _look(self) -> frozenset[tuple[str, int, int]]:
        found = set()
        for path in self._folder.rglob("*"):
            if path.suffix.lower() in SUFFIXES:
                try:
                    state = path.stat()
                except OSError:
                    continue
                found.add((str(path), state.st_mtime_ns, state.st_size))
        return frozenset(found)


def follow(database: Database, follower: Follower, stop: threading.Event) -> None:
    """Apply what changes in the follower's folder until ``stop`` is set."""
    run_every(follower.apply_if_changed, database=database, interval=FOLLOW_INTERVAL, stop=stop)


@contextmanager
def planning_beside(database: Database) -> Iterator[None]:
    """Keep schedules planned to their host's horizon for the time of a ``with`` block.

    Workers do so for databases whose passes pg_cron hosts: no ticker plans there. A planner that fails is logged and
    does not end the work beside it.
    """
    done = threading.Event()

    def plan() -> None:
        try:
            keep_planned(database, done)
        except SchedulerError as error:
            logger.warning("planning stopped", extra={"event": "planning_stopped", "error": str(error)})

    thread = threading.Thread(target=plan, name="sched-planner", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(ABORT_PATIENCE_SECONDS)


def run_together(stop: threading.Event, abort: threading.Event, *loops: Loop) -> None:
    """Run loops until each has ended; the first error stops all of them and is raised.

    When ``abort`` is set the loops get a moment to give back what they hold, then the process ends; what it still
    runs is taken over by others after its lease.
    """
    failures: list[BaseException] = []

    def guarded(loop: Loop) -> None:
        try:
            loop(stop)
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    def end_at_once() -> None:
        abort.wait()
        time.sleep(ABORT_PATIENCE_SECONDS)
        os._exit(128 + signal.SIGINT)

    threading.Thread(target=end_at_once, name="sched-abort", daemon=True).start()
    threads = [threading.Thread(target=guarded, args=(loop,), daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]

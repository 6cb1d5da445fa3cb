"""The reaper as a loop of its own, for hosts that run no jobs: takes over expired leases, repeats admission.

Workers do the same after each look (services/worker/watcher.py). Any number may run; one is at it at a time.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from scheduler.services.loop import run_every
from scheduler.storage.database import Connection, Database
from scheduler.storage.jobs import ReapResult, reap_jobs

INTERVAL = timedelta(seconds=1)


def reap_once(connection: Connection, by: str = "reaper") -> ReapResult:
    """One round, in one short transaction: jobs whose lease expired are available again, or dead at their maximum."""
    return reap_jobs(connection, by)


def run_reaper(database: Database, stop: threading.Event, interval: timedelta = INTERVAL) -> None:
    """Reap every ``interval`` until ``stop`` is set; passing database errors are waited out."""
    run_every(reap_once, database=database, interval=interval, stop=stop)

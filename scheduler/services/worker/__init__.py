"""The worker: claims jobs in batches, runs them, keeps their leases, and records how they ended.

One process, synchronous psycopg in threads (docs/decisions/0005). Each thread has one concern and its own connection:

    main       claims as many jobs as can start and hands them to executors      worker.py, the thread that calls run
    settler    records endings in batches                                        settler.py
    heartbeat  extends leases                                                    heartbeat.py
    watcher    waits for hints, looks every second, reaps                        watcher.py
    guard      time-outs, and leases we can no longer trust; no database         guard.py

They share ``InFlight`` (in_flight.py), the jobs this process holds; dispatcher.py starts those for which there is a
slot. No transaction is open while a handler runs.
"""

from scheduler.services.worker.settings import WorkerResult, WorkerSettings
from scheduler.services.worker.worker import Worker

__all__ = ["Worker", "WorkerResult", "WorkerSettings"]

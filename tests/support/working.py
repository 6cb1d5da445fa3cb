"""Workers inside the test process, and short ways to enqueue jobs and to read what became of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from scheduler.handlers import HandlerRegistry
from scheduler.services.worker import Worker, WorkerResult, WorkerSettings
from scheduler.storage.database import Database
from tests.support.wait import wait_for

PATIENCE = 30.0


class RunningWorker:
    """A worker in a thread; ``stop`` and ``abort`` are its signals, ``result`` is there after ``join``."""

    def __init__(self, worker: Worker, *, drain: bool = False) -> None:
        self.worker = worker
        self.stop = threading.Event()
        self.abort = threading.Event()
        self.result: WorkerResult | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(drain,), daemon=True)
        self._thread.start()

    def join(self) -> WorkerResult:
        """Wait for the end and return the counts; raises what ``run`` raised."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the worker does not end"
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def _run(self, drain: bool) -> None:
        try:
            self.result = self.worker.run(self.stop, abort=self.abort, drain=drain)
        except BaseException as error:
            self.error = error


@contextmanager
def running_worker(dsn: str, registry: HandlerRegistry, **settings: Any) -> Iterator[RunningWorker]:
    """A worker that runs during the block and is stopped at its end. Grace 5 s and lease 5 s unless given."""
    running = RunningWorker(Worker(Database(dsn), registry, _settings(settings)))
    try:
        yield running
    finally:
        running.stop.set()
        running.join()


def drain(dsn: str, registry: HandlerRegistry, **settings: Any) -> WorkerResult:
    """Run a worker until nothing is due or running."""
    return RunningWorker(Worker(Database(dsn), registry, _settings(settings)), drain=True).join()


def enqueue(dsn: str, job_type: str, payload: Any = None, **columns: Any) -> int:
    """Enqueue one job; ``columns`` are further columns of sched.jobs to set at once. Returns its id."""
    with psycopg.connect(dsn, autocommit=True) as connection, connection.transaction():
        row = connection.execute(
            "select id from sched.enqueue(%s, %s::jsonb)", (job_type, json.dumps(payload or {}))
        ).fetchone()
        assert row is not None
        for name, value in columns.items():
            connection.execute(
                psycopg.sql.SQL("update sched.jobs set {} = %s where id = %s").format(psycopg.sql.Identifier(name)),
                (json.dumps(value) if isinstance(value, dict) else value, row[0]),
            )
    return int(row[0])


def job_row(dsn: str, job_id: int) -> dict[str, Any]:
    """The row of a job."""
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        row = connection.execute("select * from sched.jobs where id = %s", (job_id,)).fetchone()
    assert row is not None
    return row


def attempts_of(dsn: str, job_id: int) -> list[dict[str, Any]]:
    """The attempts of a job, oldest first."""
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        return connection.execute(
            "select * from sched.attempts where job_id = %s order by number", (job_id,)
        ).fetchall()


def wait_for_status(dsn: str, job_id: int, *statuses: str) -> dict[str, Any]:
    """Wait until a job has one of these states; returns its row."""

    def reached() -> dict[str, Any] | None:
        row = job_row(dsn, job_id)
        return row if row["status"] in statuses else None

    found = wait_for(reached, PATIENCE, f"job {job_id} to be {' or '.join(statuses)}")
    assert found is not None
    return found


def _settings(given: dict[str, Any]) -> WorkerSettings:
    usual: dict[str, Any] = {"lease": timedelta(seconds=5), "shutdown_grace": timedelta(seconds=5), "name": "test"}
    return WorkerSettings(**{**usual, **given})

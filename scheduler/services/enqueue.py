"""Enqueue jobs from an application, in its own transaction: the job exists if and only if the change commits.

Takes the connections that applications have: psycopg, sync or async, and any DB-API connection whose parameters are
written ``%s`` (psycopg2, pg8000). SQLAlchemy: ``session.connection().connection.driver_connection``; Django:
``django.db.connection.connection``. Nothing is committed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from scheduler.core.storable import storable, storage_faults, text_fault
from scheduler.errors import ConfigError
from scheduler.storage.operating import Enqueued, NewJob
from scheduler.storage.queries import queries

BATCH = 5000


def enqueue(
    connection: Any,
    job_type: str,
    payload: Mapping[str, Any] | None = None,
    *,
    queue: str = "default",
    priority: int = 100,
    run_at: datetime | None = None,
    idempotency_key: str | None = None,
    limit: str | None = None,
    max_attempts: int = 5,
    timeout: timedelta | None = None,
) -> Enqueued:
    """Enqueue one job; returns its id, and whether it is new or the one that has the key already.

    ``run_at`` is an instant with a time zone. Raises ConfigError that names the field when a value cannot be stored;
    errors of the database are the driver's own.
    """
    job = NewJob(
        job_type=job_type,
        payload=payload or {},
        queue=queue,
        priority=priority,
        run_at=run_at,
        idempotency_key=idempotency_key,
        limit_key=limit,
        max_attempts=max_attempts,
        timeout=timeout,
    )
    (made,) = enqueue_many(connection, [job])
    return made


def enqueue_many(connection: Any, jobs: Iterable[NewJob]) -> list[Enqueued]:
    """Enqueue jobs in batches of one statement each; answers in their order. See ``enqueue``."""
    made: list[Enqueued] = []
    for document in _documents(jobs):
        cursor = connection.cursor()
        try:
            cursor.execute(_statement(), (document,))
            made += [Enqueued(*row) for row in cursor.fetchall()]
        finally:
            cursor.close()
    return made


async def enqueue_many_async(connection: Any, jobs: Iterable[NewJob]) -> list[Enqueued]:
    """The same on an async psycopg connection."""
    made: list[Enqueued] = []
    for document in _documents(jobs):
        async with connection.cursor() as cursor:
            await cursor.execute(_statement(), (document,))
            made += [Enqueued(*row) for row in await cursor.fetchall()]
    return made


def _statement() -> str:
    """With a positional parameter, which every driver knows."""
    return queries()["jobs_enqueue_many"].replace("%(jobs)s", "%s")


def _documents(jobs: Iterable[NewJob]) -> list[str]:
    checked = [_checked(job) for job in jobs]
    return [json.dumps(checked[start : start + BATCH]) for start in range(0, len(checked), BATCH)]


def _checked(job: NewJob) -> dict[str, Any]:
    for name, text in (("job_type", job.job_type), ("queue", job.queue), ("idempotency_key", job.idempotency_key)):
        if text is not None and (fault := text_fault(text)):
            raise ConfigError(f"{name} {fault}")
    if not job.job_type or not job.queue:
        raise ConfigError("a job needs a job_type and a queue that are not empty")
    if job.max_attempts < 1:
        raise ConfigError(f"max_attempts is {job.max_attempts}: it must be at least 1")
    if job.run_at is not None and job.run_at.tzinfo is None:
        raise ConfigError(f"run_at {job.run_at} has no time zone: pass an aware datetime")
    payload = dict(job.payload)
    if faults := storage_faults(payload):
        path, fault = faults[0]
        raise ConfigError(f"{_place(path)} {fault}")
    values: dict[str, Any] = {
        "job_type": job.job_type,
        "payload": storable(payload),
        "queue": job.queue,
        "priority": job.priority,
        "run_at": job.run_at and job.run_at.isoformat(),
        "idempotency_key": job.idempotency_key,
        "limit_key": job.limit_key,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout and f"{job.timeout.total_seconds()} seconds",
    }
    return {name: value for name, value in values.items() if value is not None}


def _place(path: Sequence[str | int]) -> str:
    return "payload" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)

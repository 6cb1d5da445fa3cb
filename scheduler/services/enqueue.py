"""Enqueue jobs from an application, in its own transaction: the job exists if and only if the change commits.

Takes the connections that applications have; ``scheduler.storage.foreign`` lists them. Nothing is committed here, and
no setting of the connection is changed: the application's commit publishes the jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from scheduler.core.jobs.new_job import Enqueued, NewJob, job_document
from scheduler.errors import ConfigError
from scheduler.storage import operating
from scheduler.storage.database import Connection, transaction
from scheduler.storage.foreign import fetch_on, fetch_on_async

BATCH_JOBS = 5000
BATCH_CHARACTERS = 8 * 1024 * 1024


class JobOptions(TypedDict, total=False):
    """What may be said about a job by name; ``NewJob`` says what each means, and has the defaults."""

    queue: str
    priority: int
    run_at: datetime | None
    idempotency_key: str | None
    limit: str | None
    max_attempts: int
    timeout: timedelta | None


def enqueue(
    connection: Any, job_type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
) -> Enqueued:
    """Enqueue one job in the transaction of ``connection``: its id, and whether it was created.

    If a job has the ``idempotency_key`` already, that one's id is returned with ``is_created`` False, and nothing is
    made or changed, whatever its type and payload. One that another transaction has just made and not committed is
    waited for. Raises ConfigError that names the field when a value cannot be stored, or for a connection that cannot
    be used; nothing was sent then. Errors of the database are the driver's own.
    """
    (text,) = _texts([_new_job(job_type, payload, options)], "")
    ((job_id, is_created),) = fetch_on(connection, "jobs_enqueue_many", f"[{text}]")
    return Enqueued(job_id, is_created)


def enqueue_many(connection: Any, jobs: Iterable[NewJob]) -> list[Enqueued]:
    """Enqueue jobs with few statements, of at most 5,000 jobs each; answers in their order. See ``enqueue``.

    All of them are checked before the first statement. On a connection in autocommit each statement commits by itself.
    """
    return [
        Enqueued(*row)
        for batch in _batches(_texts(jobs, "jobs[{}]."))
        for row in fetch_on(connection, "jobs_enqueue_many", batch)
    ]


async def enqueue_async(
    connection: Any, job_type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
) -> Enqueued:
    """``enqueue`` on an asynchronous connection: of psycopg, SQLAlchemy or asyncpg."""
    (text,) = _texts([_new_job(job_type, payload, options)], "")
    ((job_id, is_created),) = await fetch_on_async(connection, "jobs_enqueue_many", f"[{text}]")
    return Enqueued(job_id, is_created)


async def enqueue_many_async(connection: Any, jobs: Iterable[NewJob]) -> list[Enqueued]:
    """``enqueue_many`` on an asynchronous connection: of psycopg, SQLAlchemy or asyncpg."""
    return [
        Enqueued(*row)
        for batch in _batches(_texts(jobs, "jobs[{}]."))
        for row in await fetch_on_async(connection, "jobs_enqueue_many", batch)
    ]


def enqueue_job(connection: Connection, job: NewJob) -> Enqueued:
    """Enqueue one job in a transaction of its own, with our errors. Raises ConfigError for a limit not defined."""
    (text,) = _texts([job], "")
    with transaction(connection):
        return operating.enqueue(connection, f"[{text}]")


def _new_job(job_type: str, payload: Mapping[str, Any] | None, options: JobOptions) -> NewJob:
    return NewJob(job_type, {} if payload is None else payload, **options)


def _texts(jobs: Iterable[NewJob], prefix: str) -> list[str]:
    """Each job as JSON, with characters as they are: a database without an encoding refuses their escapes."""
    texts = []
    for index, job in enumerate(jobs):
        if not isinstance(job, NewJob):
            raise ConfigError(f"jobs[{index}]: a {type(job).__name__} is not a NewJob")
        texts.append(json.dumps(job_document(job, prefix.format(index)), ensure_ascii=False))
    return texts


def _batches(texts: list[str]) -> Iterator[str]:
    """JSON arrays of bounded length: PostgreSQL takes no more than 256 MB in one."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == BATCH_JOBS or size + len(text) > BATCH_CHARACTERS):
            yield f"[{','.join(batch)}]"
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield f"[{','.join(batch)}]"

"""Handlers for worker processes under test. Each notes its start in public.starts, beside whatever the worker does."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import psycopg

from scheduler import handlers

DSN = os.environ.get("SCHED_DSN", "")


@handlers.handler("test.note")
def note(job: handlers.Job) -> None:
    _note_start(job)


@handlers.handler("test.gate")
def gate(job: handlers.Job) -> dict[str, int]:
    """Wait for the attempt's gate, then return, or raise if the payload says so."""
    _note_start(job)
    with psycopg.connect(DSN, autocommit=True) as connection:
        while connection.execute("select from public.gates where attempt = %s", (job.attempt,)).fetchone() is None:
            time.sleep(0.02)
    if job.payload.get("raises"):
        raise RuntimeError("told to fail")
    return {"pid": os.getpid()}


@handlers.handler("test.sleep")
def sleep(job: handlers.Job) -> None:
    _note_start(job)
    time.sleep(job.payload["seconds"])


@handlers.handler("test.async_sleep")
async def async_sleep(job: handlers.Job) -> None:
    _note_start(job)
    await asyncio.sleep(job.payload["seconds"])


@handlers.handler("test.hold_interpreter")
def hold_interpreter(job: handlers.Job) -> None:
    """Keep every other Python thread of this process from running, at the first attempt."""
    _note_start(job)
    ends = time.monotonic() + job.payload["seconds"]
    while job.attempt == 1 and time.monotonic() < ends:
        sum(range(200_000_000))


@handlers.handler("test.die")
def die(job: handlers.Job) -> None:
    _note_start(job)
    os._exit(137)


@handlers.handler("test.who")
async def who(job: handlers.Job) -> dict[str, int]:
    """Say which attempt of which process this was, after a moment."""
    await asyncio.sleep(job.payload["seconds"])
    return {"attempt": job.attempt, "pid": os.getpid()}


def _note_start(job: handlers.Job) -> Any:
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(
            "insert into public.starts (job_id, attempt, pid) values (%s, %s, %s)", (job.id, job.attempt, os.getpid())
        )

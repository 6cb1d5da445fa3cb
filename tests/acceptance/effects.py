"""The handler of the kill tests: takes a moment, and leaves one row of effect in the transaction that completes it.

The module is loaded by real workers with ``--app tests.acceptance.effects``. Table ``public.effects`` has no unique
constraint on purpose: a second effect of the same date would be a second row. ``public.starts`` is written outside
any transaction of ours, so it also shows the attempts that were killed.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import psycopg

from scheduler.handlers import Job, handler

TABLES = """
create table public.starts (logical_date timestamptz, job_id bigint, attempt integer, at timestamptz default now());
create table public.effects (logical_date timestamptz, job_id bigint, attempt integer, at timestamptz default now())
"""
WORK_SECONDS = 0.25


@handler("test.effect")
def effect(job: Job) -> None:
    """Note the start, work a moment, and complete the job together with its effect."""
    row = (job.logical_date, job.id, job.attempt)
    with psycopg.connect(os.environ["SCHED_DSN"], autocommit=True) as connection:
        connection.execute("insert into public.starts (logical_date, job_id, attempt) values (%s, %s, %s)", row)
    threading.Event().wait(WORK_SECONDS)
    with job.transaction() as transaction:
        job.result = _note(transaction, row)


def _note(connection: Any, row: tuple[Any, ...]) -> dict[str, int]:
    connection.execute("insert into public.effects (logical_date, job_id, attempt) values (%s, %s, %s)", row)
    return {"attempt": row[2]}

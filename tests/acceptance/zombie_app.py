"""Loaded by real workers with ``--app``: a handler that stops its own process at a named point, by SIGSTOP.

The points are: ``running`` (in the handler, before it did anything), ``after the side effect``, ``in heartbeat`` (a
beat is about to be sent) and ``before settle`` (the ending is about to be sent). Before a process stops it leaves a
row in ``public.stops``, if its lease is still good then; each cycle stops once. What the database answers to a token
that was stopped is kept in ``public.answers``.

Every statement about jobs is preceded by its name and the tokens it presents, as a setting of its session. From that
the triggers of ``zombie_cycles`` tell who changed a row with which token. The product knows nothing of this.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from scheduler.handlers import Discard, Hold, Job, handler
from scheduler.storage import jobs as storage
from tests.support.wait import wait_for

DSN = os.environ.get("SCHED_DSN", "")
PATIENCE = 60.0
POLL_SECONDS = 0.1
POINT_BEFORE = {
    "jobs_heartbeat": "in heartbeat",
    "jobs_complete": "before settle",
    "jobs_fail": "before settle",
}
"""Which point comes before which statement."""
TOKEN = re.compile(r"[0-9a-f-]{36}")

_stopping = threading.Lock()
_victims: dict[str, Job] = {}
"""Jobs by token whose process is to stop, or was stopped, at their point."""


@handler("zombie.plain")
def plain(job: Job) -> Any:
    """Work in a thread, which nobody can end."""
    return _work(job)


@handler("zombie.async")
async def asynchronous(job: Job) -> Any:
    """Work in a task, which ends when the lease is lost; the thread behind it goes on all the same."""
    return await asyncio.to_thread(_work, job)


@handler("zombie.bystander")
def bystander(job: Job) -> dict[str, int]:
    """Take a moment. A process that is stopped takes its other jobs with it, wherever they are."""
    time.sleep(job.payload["seconds"])
    return {"attempt": job.attempt}


def _work(job: Job) -> Any:
    if _exists("select from public.stops where cycle = %s", job.payload["cycle"]):
        return _succeed(job)
    _victims[job.lease_token] = job
    _reach("running", job)
    if job.payload["point"] == "in heartbeat":
        stop = "select from public.stops where cycle = %s"
        wait_for(lambda: _exists(stop, job.payload["cycle"]), PATIENCE, "a beat", every=POLL_SECONDS)
    if job.payload["ending"] == "commits":
        return _commit(job)
    with psycopg.connect(DSN, autocommit=True) as connection:
        _note_effect(connection, job)
    _reach("after the side effect", job)
    return _end(job)


def _succeed(job: Job) -> Any:
    """A later attempt: hold on until the zombie has been answered if the cycle says so, then do it right."""
    if job.payload["returns"] == "beside the next attempt":
        gate = "select from public.gates where cycle = %s"
        wait_for(lambda: _exists(gate, job.payload["cycle"]), PATIENCE, "the zombie to be answered", every=POLL_SECONDS)
    if job.payload["ending"] == "commits":
        return _commit(job)
    return {"attempt": job.attempt}


def _commit(job: Job) -> None:
    with job.transaction() as connection:
        _note_effect(connection, job)
        _reach("after the side effect", job)
        job.result = {"attempt": job.attempt}


def _end(job: Job) -> dict[str, int]:
    match job.payload["ending"]:
        case "fails":
            raise RuntimeError("told to fail")
        case "discards":
            raise Discard("told to be discarded")
        case "holds":
            raise Hold("told to be held")
    return {"attempt": job.attempt}


def _note_effect(connection: psycopg.Connection[Any], job: Job) -> None:
    connection.execute("insert into public.effects (job_id, attempt) values (%s, %s)", (job.id, job.attempt))


def _reach(point: str, job: Job) -> None:
    """Stop this process if this is the point of the job's cycle; returns when it was continued."""
    if job.payload["point"] != point:
        return
    with _stopping, psycopg.connect(DSN, autocommit=True) as connection:
        stops = connection.execute(
            """
            insert into public.stops (cycle, point, pid, job_id, token)
            select %s, %s, %s, j.id, j.lease_token
            from sched.jobs j
            where j.id = %s and j.lease_token = %s and j.lease_expires_at > clock_timestamp()
            on conflict do nothing
            """,
            (job.payload["cycle"], point, os.getpid(), job.id, job.lease_token),
        ).rowcount
        if stops:
            # To this very thread: it must not run on until another one has taken the signal.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _exists(query: str, parameter: object) -> bool:
    with psycopg.connect(DSN, autocommit=True) as connection:
        return connection.execute(query.encode(), (parameter,)).fetchone() is not None


def _presenting(run: Callable[..., Any], name_at: int) -> Callable[..., Any]:
    """``run`` with the points before it, and with the tokens it presents made known to the session."""

    def run_presenting(*arguments: Any) -> Any:
        connection, name, parameters = arguments[0], arguments[name_at], arguments[name_at + 1]
        tokens = TOKEN.findall(str(parameters.get("tokens", "")))
        point = POINT_BEFORE.get(name)
        victims = [_victims[token] for token in tokens if point and token in _victims]
        for job in victims:
            _reach(str(point), job)
        presented = f"{name} {{{','.join(tokens)}}}"
        connection.execute("select set_config('zombie.presents', %s, false)", (presented,))
        answer = run(*arguments)
        if victims:
            _keep_answers(name, victims, _outcomes(name, tokens, parameters["ids"], answer))
        return answer

    return run_presenting


def _outcomes(name: str, tokens: list[str], ids: str, answer: list[Any]) -> dict[str, str]:
    """What was answered, by token."""
    if name != "jobs_heartbeat":
        return dict(zip(tokens, answer, strict=True))
    by_id = {row.id: row.outcome for row in answer}
    asked = map(int, ids.strip("{}").split(","))
    return {token: by_id[job_id] for job_id, token in zip(asked, tokens, strict=True) if job_id in by_id}


def _keep_answers(name: str, victims: list[Job], outcomes: dict[str, str]) -> None:
    with psycopg.connect(DSN, autocommit=True) as connection:
        for job in victims:
            if job.lease_token in outcomes:
                connection.execute(
                    "insert into public.answers (token, statement, outcome) values (%s, %s, %s)",
                    (job.lease_token, name, outcomes[job.lease_token]),
                )


# The functions that storage.jobs calls; its module is loaded before this one.
setattr(storage, "fetch", _presenting(storage.fetch, 2))  # noqa: B010
setattr(storage, "fetch_values", _presenting(storage.fetch_values, 1))  # noqa: B010

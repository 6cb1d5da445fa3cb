"""Claimed jobs between rows and values: claim, heartbeat, settle, hand back, reap, and the row of the worker itself.

Each function is one statement; on a connection in autocommit that is one short transaction. Jobs are settled in id
order, so that batches of several workers do not wait for each other in a circle. The rules are in ``sql/functions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from scheduler.core.jobs.progress import Progress
from scheduler.core.models import AttemptOutcome
from scheduler.handlers import Job
from scheduler.storage.database import Connection
from scheduler.storage.queries import execute, fetch, fetch_value, fetch_values


class SettleOutcome(StrEnum):
    """What became of an attempt to settle."""

    SETTLED = "settled"
    ALREADY_YOURS = "already_yours"
    LOST = "lost"


_OUTCOMES = {outcome.value: outcome for outcome in SettleOutcome}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one attempt ended, as it is stored. ``result`` and ``metadata`` are JSON texts."""

    outcome: AttemptOutcome
    result: str | None = None
    error: str | None = None
    delay: timedelta | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat for one job: ``extended`` or ``lost``."""

    id: int
    outcome: str
    is_cancel_requested: bool


@dataclass(frozen=True, slots=True)
class ReapResult:
    """What one round of the reaper did; ``is_busy`` when another one was at it."""

    is_busy: bool
    retried: int
    died: int
    cancelled: int
    admitted: int


@dataclass(frozen=True, slots=True)
class Look:
    """What an idle worker sees."""

    is_registered: bool
    is_ready: bool
    is_due_soon: bool
    is_reap_due: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """How a worker process is known to the database; ``id`` is random per process start."""

    id: UUID
    name: str
    queues: tuple[str, ...]
    concurrency: int


def claim_jobs(
    connection: Connection, *, queues: Sequence[str], worker: UUID, limit: int, lease: timedelta
) -> list[Job]:
    """Lease up to ``limit`` pending jobs, in no particular order; their attempts are spent now."""
    return fetch(
        connection,
        Job,
        "jobs_claim",
        {"queues": list(queues), "worker": worker, "limit": limit, "lease": lease},
    )


def orphaned_jobs(connection: Connection, worker: UUID, known: Sequence[Job]) -> list[Job]:
    """Running jobs that ``worker`` has claimed beside those it knows of, by id; only ids and tokens are filled in."""
    return fetch(connection, Job, "jobs_orphans", {"worker": worker, "tokens": _leases(known)["tokens"]})


def complete_jobs(connection: Connection, ended: Sequence[tuple[Job, Ending]]) -> list[SettleOutcome]:
    """Record successful attempts, each if its lease is still ours; answers in the order of ``ended``."""
    results = [ending.result for _, ending in ended]
    return _outcomes(connection, "jobs_complete", ended, {"results": _array_or_none(results)})


def fail_jobs(connection: Connection, ended: Sequence[tuple[Job, Ending]]) -> list[SettleOutcome]:
    """Record attempts that did not succeed, each if its lease is still ours; answers in the order of ``ended``."""
    return _outcomes(
        connection,
        "jobs_fail",
        ended,
        {
            "outcomes": [ending.outcome.value for _, ending in ended],
            "errors": [ending.error for _, ending in ended],
            "delays": _array_or_none([ending.delay for _, ending in ended]),
        },
    )


def hand_back_jobs(connection: Connection, jobs: Sequence[Job]) -> list[SettleOutcome]:
    """Return unfinished jobs: claimable at once, the attempt not spent; answers in the order of ``jobs``."""
    return [_OUTCOMES[value] for value in fetch_values(connection, "jobs_hand_back", _leases(jobs))]


def extend_leases(
    connection: Connection, jobs: Sequence[Job], lease: timedelta, news: Sequence[Progress | None]
) -> list[HeartbeatAnswer]:
    """Extend leases by ``lease`` from now, and store what is new about their progress, None where nothing is.

    Jobs whose row somebody holds are missing in the answer.
    """
    fractions = _array_or_none([each and each.fraction for each in news])
    notes = None if fractions is None else [each and each.note for each in news]
    parameters = {**_leases(jobs), "lease": lease, "fractions": fractions, "notes": notes}
    return fetch(connection, HeartbeatAnswer, "jobs_heartbeat", parameters)


def reap_jobs(connection: Connection, by: str) -> ReapResult:
    """Take over expired leases and repeat admission, in one short transaction."""
    (result,) = fetch(connection, ReapResult, "jobs_reap", {"by": by})
    return result


def jobs_remain(connection: Connection, queues: Sequence[str]) -> bool:
    """Whether anything of these queues is due or running, by any worker."""
    return bool(fetch_value(connection, "jobs_remain", {"queues": list(queues)}))


def register_worker(connection: Connection, worker: WorkerRow, *, has_free_slots: bool) -> None:
    """Make the worker known; a second call only refreshes it."""
    execute(
        connection,
        "workers_register",
        {
            "worker": worker.id,
            "name": worker.name,
            "queues": list(worker.queues),
            "concurrency": worker.concurrency,
            "has_free_slots": has_free_slots,
        },
    )


def announce_worker(connection: Connection, worker: UUID, *, has_free_slots: bool) -> None:
    """Say whether hints about new jobs are wanted."""
    execute(connection, "workers_announce", {"worker": worker, "has_free_slots": has_free_slots})


def remove_worker(connection: Connection, worker: UUID) -> None:
    """Forget a worker that ends in good order."""
    execute(connection, "workers_leave", {"worker": worker})


def next_due(connection: Connection, queues: Sequence[str], within: timedelta) -> float | None:
    """Seconds until the next scheduled job of these queues is due, if it is ``within`` that time; 0 or less is due."""
    delay: float | None = fetch_value(connection, "jobs_next_due", {"queues": list(queues), "within": within})
    return delay


def look(connection: Connection, worker: WorkerRow, within: timedelta, *, has_free_slots: bool) -> Look:
    """Ask for something to claim, now or ``within`` that time, and something to reap; keeps the worker's row fresh."""
    (seen,) = fetch(
        connection,
        Look,
        "workers_look",
        {"worker": worker.id, "queues": list(worker.queues), "within": within, "has_free_slots": has_free_slots},
    )
    return seen


def _outcomes(
    connection: Connection, query: str, ended: Sequence[tuple[Job, Ending]], more: dict[str, Any]
) -> list[SettleOutcome]:
    metadata = [ending.metadata for _, ending in ended]
    parameters = {**_leases([job for job, _ in ended]), "metadata": _array_or_none(metadata), **more}
    return [_OUTCOMES[value] for value in fetch_values(connection, query, parameters)]


def _leases(jobs: Sequence[Job]) -> dict[str, str]:
    """Ids and tokens as array literals, which need no quoting: cheaper than adapting a list of thousands."""
    return {
        "ids": "{" + ",".join([str(job.id) for job in jobs]) + "}",
        "tokens": "{" + ",".join([job.lease_token for job in jobs]) + "}",
    }


def _array_or_none(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None

"""What the simulation asks of its throw-away database. Functions never commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from scheduler.storage.database import Connection
from scheduler.storage.queries import fetch, fetch_value, fetch_values

WORKER = uuid4()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDate:
    """A date and what became of it."""

    schedule: str
    logical_date: datetime
    due_at: datetime
    state: str
    reason: str | None
    decided_at: datetime | None
    job_id: int | None


@dataclass(frozen=True, slots=True)
class Started:
    """A job that a worker would start now."""

    id: int
    token: UUID


def next_event(connection: Connection, now: datetime) -> datetime | None:
    """When something would happen next by itself; None if never."""
    at: datetime | None = fetch_value(connection, "simulation_next", {"now": now})
    return at


def start_jobs(connection: Connection, limit: int) -> list[Started]:
    """Claim what can start, at most ``limit`` jobs."""
    queues = fetch_values(connection, "simulation_queues")
    return fetch(connection, Started, "simulation_claim", {"queues": queues, "worker": WORKER, "limit": limit})


def finish_jobs(connection: Connection, jobs: Sequence[Started]) -> None:
    """Complete jobs; what waited for their slots is admitted."""
    fetch_values(
        connection, "simulation_complete", {"ids": [job.id for job in jobs], "tokens": [job.token for job in jobs]}
    )


def simulated_dates(connection: Connection, until: datetime) -> list[SimulatedDate]:
    """Every date due before ``until``, in the order in which they were due."""
    return fetch(connection, SimulatedDate, "simulation_ledger", {"until": until})

"""What ``sched doctor`` asks of the database, the invariants among it. Reads, but for ``repair_clock``.

``what`` says in a few words what a row is about. Lists are cut at ``LISTED``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler.storage.database import Connection
from scheduler.storage.queries import fetch, fetch_values

LISTED = 1_000
JOBS_KEPT = timedelta(hours=1)
"""``sched prune`` leaves jobs alone for so long after they ended, whatever it is told."""

INVARIANTS = {
    "invariant_one_job_per_date": "at most one job per date and generation",
    "invariant_one_row_per_wall": "at most one date per wall time of a revision",
    "invariant_passes_see_every_date": "no planned date is due before the moment at which passes begin to look",
    "invariant_running_has_lease": "a running job has owner, lease and token",
    "invariant_limit_slots": "admitted jobs of a limit never exceed its slots",
    "invariant_overlap_slots": "admitted jobs of an overlap key never exceed its slot",
    "invariant_keyed_jobs_hold_their_slots": "a keyed job that is pending or running has its slots",
    "invariant_no_wait_beside_a_free_slot": "no job waits beside a free slot",
    "invariant_attempt_count": "the attempt count is the number of attempt rows, one more while running",
    "invariant_final_jobs_are_ended": "final states have an end and no lease",
    "invariant_enqueued_dates_have_their_job": "an enqueued date has its job",
    "invariant_jobs_of_dates_are_in_the_ledger": "a job of a date is in the ledger",
    "invariant_no_foreign_id_without_its_row": "no foreign id without its row",
}
"""Named queries and what each one checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A server; ``version`` is like 180007, ``notification_queue_usage`` a share of one."""

    version: int
    now: datetime
    notification_queue_usage: float
    is_vacuuming: bool
    is_durable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """Who passes and plans; ``schedules`` counts those in force."""

    host: str
    tzdata: str | None
    last_pass_at: datetime | None
    clock_apart: timedelta | None
    schedules: int


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something to look at, and the moment that belongs to it."""

    what: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session with an open transaction; ``pid`` is 0 for a prepared one, whose name is the application."""

    pid: int
    application: str
    state: str
    age: timedelta


@dataclass(frozen=True, slots=True)
class Repaired:
    """How many dates are planned again, and how many jobs got another lease or delay."""

    dates: int
    jobs: int


def server_facts(connection: Connection) -> ServerFacts:
    """What any server tells, also one without our schema."""
    (facts,) = fetch(connection, ServerFacts, "doctor_server")
    return facts


def state_facts(connection: Connection) -> StateFacts:
    """What the database records about itself."""
    (facts,) = fetch(connection, StateFacts, "doctor_state")
    return facts


def unplanned(connection: Connection, patience: timedelta) -> list[Noticed]:
    """Schedules that wait for a planner longer than ``patience``, and since when."""
    return _noticed(connection, "doctor_unplanned", patience=patience)


def ended_horizons(connection: Connection, patience: timedelta) -> list[Noticed]:
    """Schedules without a planned date ahead for longer than ``patience``, and up to when they were planned."""
    return _noticed(connection, "doctor_ended_horizons", patience=patience)


def draining_limits(connection: Connection) -> list[Noticed]:
    """Limits that were lowered below the jobs they had admitted, with both numbers, and when."""
    return _noticed(connection, "doctor_draining_limits")


def overdue_dates(connection: Connection) -> list[Noticed]:
    """Dates that are not done by their ``finish_by``, and when that was."""
    return _noticed(connection, "doctor_overdue")


def undecided(connection: Connection, patience: timedelta) -> list[Noticed]:
    """Schedules with dates that are late by more than ``patience`` and undecided, and when the oldest was due."""
    return _noticed(connection, "doctor_undecided", patience=patience)


def future_decisions(connection: Connection) -> list[Noticed]:
    """Dates without a job that were decided in the future, and when."""
    return _noticed(connection, "doctor_future_decisions")


def expired_leases(connection: Connection, patience: timedelta) -> list[Noticed]:
    """Running jobs whose lease ended more than ``patience`` ago, and when."""
    return _noticed(connection, "doctor_expired_leases", patience=patience)


def unserved_queues(connection: Connection, patience: timedelta) -> list[Noticed]:
    """Queues without a worker whose oldest job could be claimed for longer than ``patience``, and since when."""
    return _noticed(connection, "doctor_unserved_queues", patience=patience)


def ending_calendars(connection: Connection, ahead: timedelta) -> list[Noticed]:
    """Schedules whose holidays are known for less than ``ahead``, and the first day that is not known."""
    return _noticed(connection, "doctor_calendars", ahead=ahead)


def open_sessions(connection: Connection, *, idle: timedelta, old: timedelta) -> list[Session]:
    """Sessions idle in a transaction for longer than ``idle`` or with a snapshot older than ``old``, oldest first."""
    return fetch(connection, Session, "doctor_sessions", {"idle": idle, "old": old, "limit": LISTED})


def violations(connection: Connection, jobs_kept: timedelta | None = JOBS_KEPT) -> Mapping[str, list[str]]:
    """What violates each invariant, by the invariant's sentence; empty when all hold.

    ``jobs_kept`` is how long a job stays at least, None where none was ever pruned. A violation that is seen once may
    be a change under way: look twice.
    """
    parameters = {"limit": LISTED, "jobs_kept": jobs_kept}
    found = {title: fetch_values(connection, name, parameters) for name, title in INVARIANTS.items()}
    return {title: subjects for title, subjects in found.items() if subjects}


def repair_clock(connection: Connection, by: str) -> Repaired:
    """One batch of ``sched.repair_clock``; repeat until there is no date left."""
    (repaired,) = fetch(connection, Repaired, "doctor_repair_clock", {"by": by})
    return repaired


def _noticed(connection: Connection, query: str, **parameters: Any) -> list[Noticed]:
    return fetch(connection, Noticed, query, {**parameters, "limit": LISTED})

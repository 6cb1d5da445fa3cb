"""pg_cron as the server has it: what is installed and granted, its jobs and their runs, and changing our own.

Functions take the open connection first and never commit. Those that say "in pg_cron's database" read the schema
``cron``, which exists only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg.conninfo import make_conninfo

from scheduler.core.pgcron import CronJob, InstalledJob
from scheduler.storage.database import Connection, Database
from scheduler.storage.queries import execute, fetch, fetch_value, fetch_values


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One database of a server, as its role sees it.

    ``server`` tells servers apart. ``installed`` is the extension's version in this database, ``available`` what the
    server could install. Settings are None when they are unset or, unless ``is_telling``, may not be read.
    """

    database: str
    role: str
    server: datetime
    installed: str | None
    available: str | None
    is_telling: bool
    cron_database: str | None
    is_in_background_workers: bool | None
    cron_timezone: str | None
    is_switched_off: bool
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The newest run of a job; a run that could not connect has no start."""

    id: int
    status: str
    message: str | None
    started_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """Who hosts the passes and how that goes. ``hasty`` are schedules whose grace does not exceed the beat."""

    host: str
    last_pass_at: datetime | None
    now: datetime
    horizon_ends_at: datetime | None
    horizon_ends_first: str | None
    hasty: list[str]


def sibling(database: Database, name: str) -> Database:
    """Another database of the same server, reached in the same way."""
    return Database(make_conninfo(database.dsn, dbname=name))


def read_server(connection: Connection) -> ServerFacts:
    """What this connection can tell of the server."""
    (facts,) = fetch(connection, ServerFacts, "pgcron_server")
    return facts


def missing_grants_here(connection: Connection) -> list[str]:
    """Grants the role lacks in the database of the schedules, as statements that only want ``to ROLE``."""
    return fetch_values(connection, "pgcron_missing_here")


def missing_grants_there(connection: Connection, *, is_elsewhere: bool) -> list[str]:
    """Grants the role lacks in pg_cron's database; ``is_elsewhere`` if the schedules are in another one."""
    return fetch_values(connection, "pgcron_missing_there", {"is_elsewhere": is_elsewhere})


def installed_jobs(connection: Connection, pattern: str) -> list[InstalledJob]:
    """Jobs whose name is like ``pattern``, in pg_cron's database; without superuser only the role's own."""
    return fetch(connection, InstalledJob, "pgcron_jobs", {"pattern": pattern})


def last_runs(connection: Connection, ids: Sequence[int]) -> dict[int, LastRun]:
    """The newest run of each job that ran lately, by the job's id; in pg_cron's database."""
    return {run.id: run for run in fetch(connection, LastRun, "pgcron_last_runs", {"ids": list(ids)})}


def schedule_job(connection: Connection, job: CronJob) -> None:
    """Install a job, in pg_cron's database. One of that name and role must not exist with another database."""
    arguments = {"name": job.name, "schedule": job.schedule, "command": job.command}
    if job.database == connection.info.dbname:
        fetch_value(connection, "pgcron_schedule", arguments)
    else:
        fetch_value(connection, "pgcron_schedule_in_database", {**arguments, "database": job.database})


def unschedule_jobs(connection: Connection, jobs: Sequence[InstalledJob], *, forget: bool) -> None:
    """Remove jobs, in pg_cron's database, and with ``forget`` the history of their runs."""
    for job in jobs:
        fetch_value(connection, "pgcron_unschedule", {"id": job.id})
    if forget and jobs:
        execute(connection, "pgcron_forget_runs", {"ids": [job.id for job in jobs]})


def set_host(connection: Connection, host: str, by: str) -> bool:
    """Record who hosts the passes; True if that was news."""
    changed: bool = fetch_value(connection, "pgcron_set_host", {"host": host, "by": by})
    return changed


def host_state(connection: Connection, beat: timedelta) -> HostState:
    """Who hosts the passes, and how far everything is planned."""
    (state,) = fetch(connection, HostState, "pgcron_state", {"beat": beat})
    return state


def beat(connection: Connection, by: str) -> None:
    """One beat from here, in transactions of its own: the connection must be in autocommit."""
    execute(connection, "pgcron_beat", {"by": by})

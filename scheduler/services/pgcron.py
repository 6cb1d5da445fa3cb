"""pg_cron as the host: find it, say what it lacks, install, compare and remove the jobs that give sched its beat.

Two connections, which may be to the same database: ``here`` is the database of the schedules, ``there`` the one where
pg_cron is installed (``cron.database_name``). What is wanted is decided in ``core.pgcron``; the passes themselves are
``sql/functions/housekeeping.sql``. Between ``take_over`` and ``install`` the caller plans to the new horizon.
See docs/pg-cron.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from scheduler.core.pgcron import (
    ASSUMED,
    HOST,
    IN_DATABASE_SINCE,
    OLDEST,
    SECONDS_SINCE,
    CronJob,
    Drift,
    DriftKind,
    InstalledJob,
    Version,
    beat_of,
    compare,
    job_name,
    parse_version,
    quoted_identifier,
    script,
    wanted_jobs,
)
from scheduler.core.time.durations import format_duration
from scheduler.errors import SchedulerError, StorageError
from scheduler.storage.database import Connection, Database, transaction
from scheduler.storage.pgcron import (
    HostState,
    LastRun,
    ServerFacts,
    beat,
    host_state,
    installed_jobs,
    last_runs,
    missing_grants_here,
    missing_grants_there,
    read_server,
    schedule_job,
    set_host,
    sibling,
    unschedule_jobs,
)

USUAL_CRON_DATABASE = "postgres"
BEATS_OF_SILENCE = 3
LEAST_SILENCE = timedelta(minutes=1)


class PgCronMissing(StorageError):
    """The server has no pg_cron that could be used; the message says how to get it."""


class PgCronUnreachable(StorageError):
    """The database that pg_cron is said to be in cannot be reached by this role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """pg_cron on this server, and the jobs wanted of it. ``others`` are jobs for the same schedules of other roles."""

    version: Version
    port: int
    database: str
    cron_database: str
    role: str
    wanted: tuple[CronJob, ...]
    own: tuple[InstalledJob, ...]
    others: tuple[InstalledJob, ...]
    warnings: tuple[str, ...]

    @property
    def beat(self) -> timedelta:
        """How often the host calls us."""
        return beat_of(self.version)

    @property
    def drift(self) -> list[Drift]:
        """How the role's jobs differ from the wanted ones."""
        return compare(self.wanted, self.own, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What installing changed (nothing, when it was installed already), and how the host stands now."""

    changed: Sequence[Drift]
    state: HostState


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a check found: ``drift`` in the jobs, ``troubles`` with the host. No findings, all is well."""

    survey: Survey
    state: HostState
    drift: Sequence[Drift]
    troubles: Sequence[str]


@contextmanager
def cron_connection(here: Connection, database: Database, given: Database | None = None) -> Iterator[Connection]:
    """A connection to pg_cron's database on the server of ``here``; ``given`` when the caller knows how to get there.

    Raises PgCronMissing with what to install, StorageError when that database is on another server.
    """
    facts = read_server(here)
    if given is None:
        if facts.available is None and facts.installed is None:
            raise PgCronMissing(_how_to_install(facts))
        given = sibling(database, _cron_database_name(facts))
    with _reached(given, facts) as there:
        if read_server(there).server != facts.server:
            raise StorageError("--cron-dsn leads to another server; pg_cron only reaches databases of its own server")
        yield there


def look(here: Connection, there: Connection) -> Survey:
    """Find out what is wanted and what is there.

    Raises PgCronMissing when the extension is missing or too old, StorageError naming the missing grants.
    """
    facts, cron = read_server(here), read_server(there)
    if cron.installed is None:
        raise PgCronMissing(_how_to_create(cron))
    version = parse_version(cron.installed)
    _require_version(version, facts.database, cron.database)
    _require_one_role(facts, cron)
    _require_grants(here, there, facts, cron)
    found = installed_jobs(there, job_name("%", facts.database))
    return Survey(
        version=version,
        port=cron.port,
        database=facts.database,
        cron_database=cron.database,
        role=cron.role,
        wanted=wanted_jobs(version, facts.database, cron.database),
        own=tuple(job for job in found if job.role == cron.role),
        others=tuple(job for job in found if job.role != cron.role),
        warnings=tuple(_warnings(version, cron)),
    )


def printed(here: Connection, database: Database, given: Database | None = None) -> str:
    """The script that installs the jobs, for a role that may. Needs no grant, nor that pg_cron can be reached."""
    facts = cron = read_server(here)
    cron_database = _cron_database_name(facts)
    with suppress(PgCronMissing, PgCronUnreachable), cron_connection(here, database, given) as there:
        cron = read_server(there)
        cron_database = cron.database
    known = cron.installed or cron.available
    version = ASSUMED if known is None else parse_version(known)
    _require_version(version, facts.database, cron_database)
    return script(version, facts.database, cron_database, wanted_jobs(version, facts.database, cron_database))


def take_over(here: Connection, by: str) -> bool:
    """Record pg_cron as the host, so that planners plan to its horizon from now on; True if that was news."""
    with transaction(here):
        return set_host(here, HOST, by)


def install(here: Connection, there: Connection, survey: Survey) -> Installed:
    """Make the installed jobs the wanted ones, in one transaction. A second call changes nothing.

    Then makes a first beat from here, as the role that the jobs will run as: what it may not do shows now.
    """
    drift = survey.drift
    with transaction(there):
        replaced = [
            each.installed
            for each in drift
            if each.installed is not None and _must_go_first(each, each.installed, survey.port)
        ]
        unschedule_jobs(there, replaced, forget=False)
        for each in drift:
            if each.wanted is not None:
                schedule_job(there, each.wanted)
    beat(here, HOST)
    return Installed(changed=drift, state=host_state(here, survey.beat))


def check(here: Connection, there: Connection) -> Findings:
    """Compare the installed jobs with the wanted ones, and see whether they do their work. Changes nothing."""
    survey = look(here, there)
    state = host_state(here, survey.beat)
    runs = last_runs(there, [job.id for job in survey.own])
    troubles = [*_failures(survey, runs), *_silence(survey, state)]
    return Findings(survey=survey, state=state, drift=survey.drift, troubles=troubles)


def uninstall(here: Connection, there: Connection, survey: Survey, by: str) -> Sequence[InstalledJob]:
    """Remove the role's own jobs and their run history, and record the ticker as host; returns what was removed.

    While other roles' jobs go on pg_cron stays the host: their next beat says so.
    """
    with transaction(there):
        unschedule_jobs(there, survey.own, forget=True)
    if not survey.others:
        release(here, by)
    return survey.own


def release(here: Connection, by: str) -> bool:
    """Record the ticker as the host; True if that was news. Dates planned ahead stay and fire under any host."""
    with transaction(here):
        return set_host(here, "tick", by)


@contextmanager
def _reached(database: Database, facts: ServerFacts) -> Iterator[Connection]:
    try:
        there = database.connect()
    except SchedulerError as error:
        raise PgCronUnreachable(
            f"the database of pg_cron is not reachable ({error}); if it is not "
            f'"{_cron_database_name(facts)}", say --cron-dsn; role {quoted_identifier(facts.role)} must be allowed '
            "to connect there"
        ) from error
    try:
        yield there
    finally:
        there.close()


def _cron_database_name(facts: ServerFacts) -> str:
    """Where pg_cron is: here if its extension is, else where its setting says, else where it usually is."""
    if facts.installed is not None:
        return facts.database
    return facts.cron_database or USUAL_CRON_DATABASE


def _must_go_first(drift: Drift, installed: InstalledJob, port: int) -> bool:
    """pg_cron's upsert keeps a pause and the port, and before 1.6.3 the database of a job."""
    is_elsewhere = drift.wanted is not None and drift.wanted.database != installed.database
    return drift.kind is not DriftKind.CHANGED or is_elsewhere or installed.port != port or not installed.is_active


def _require_version(version: Version, database: str, cron_database: str) -> None:
    if version < OLDEST:
        raise PgCronMissing(f"pg_cron here is {version}; named jobs need {OLDEST}: alter extension pg_cron update")
    if version < IN_DATABASE_SINCE and cron_database != database:
        raise PgCronMissing(
            f"pg_cron {version} only runs jobs in its own database, {cron_database}; for {database} it takes "
            f"{IN_DATABASE_SINCE}, or cron.database_name = '{database}'"
        )


def _require_one_role(facts: ServerFacts, cron: ServerFacts) -> None:
    """Jobs run as the role that schedules them, so that is the role whose rights here have to be looked at."""
    if facts.role != cron.role:
        raise StorageError(
            f"--cron-dsn connects as {quoted_identifier(cron.role)} and --dsn as {quoted_identifier(facts.role)}: the "
            "jobs run as the role that installs them, so connect to both as that one"
        )


def _require_grants(here: Connection, there: Connection, facts: ServerFacts, cron: ServerFacts) -> None:
    is_elsewhere = facts.database != cron.database
    wanted = [(facts.database, statement) for statement in missing_grants_here(here)]
    wanted += [(cron.database, each) for each in missing_grants_there(there, is_elsewhere=is_elsewhere)]
    if wanted:
        role = quoted_identifier(cron.role)
        lines = [f"  in database {database}: {statement} to {role};" for database, statement in wanted]
        raise StorageError(f"role {role} lacks grants that its pg_cron jobs need:\n" + "\n".join(lines))


def _how_to_install(facts: ServerFacts) -> str:
    return (
        "this server has no pg_cron (its package is not installed, and the embedded PostgreSQL never has it). "
        "With the package, two lines give it:\n"
        f"  in postgresql.conf, then restart: shared_preload_libraries = 'pg_cron'  (and cron.database_name = "
        f"'{facts.database}')\n"
        f"  in that database, as superuser:   create extension pg_cron;\n"
        'or run "sched tick", which needs nothing of the server'
    )


def _how_to_create(cron: ServerFacts) -> str:
    loaded = "is loaded" if cron.cron_database else "is not loaded, or this role may not see it"
    return (
        f"the extension pg_cron is not created in database {cron.database}, and its library {loaded}; two lines "
        "give it:\n"
        "  in postgresql.conf, then restart: shared_preload_libraries = 'pg_cron'\n"
        f"  in database {cron.cron_database or cron.database}, as superuser: create extension pg_cron;\n"
        "if it is in another database (the setting cron.database_name), say --cron-dsn"
    )


def _warnings(version: Version, cron: ServerFacts) -> Iterator[str]:
    if cron.is_in_background_workers and version < SECONDS_SINCE:
        yield (
            f"cron.use_background_workers is on, and in pg_cron {version} one long job of anybody then stops all "
            "others until it ends (citusdata/pg_cron issue 200): turn it off, or upgrade to 1.5"
        )
    if cron.is_switched_off:
        yield "cron.launch_active_jobs is off: pg_cron starts no job of anybody until it is on again"
    if cron.cron_timezone and version < SECONDS_SINCE:
        yield (
            f"cron.timezone is set, and pg_cron {version} ignores it: its own schedules are in GMT. Dates of sched "
            "are planned in their schedules' time zones and do not depend on it"
        )


def _failures(survey: Survey, runs: dict[int, LastRun]) -> Iterator[str]:
    for job in survey.own:
        run = runs.get(job.id)
        if run is not None and run.status == "failed":
            message = (run.message or "no message").strip().splitlines()[0]
            yield f"{job.name} failed when it last ran: {message}" + _advice(message, survey)


def _advice(message: str, survey: Survey) -> str:
    if "connection failed" not in message and "could not connect" not in message:
        return ""
    return (
        f"; pg_cron connects to cron.host as {quoted_identifier(survey.role)} and brings no password: allow that in "
        "pg_hba.conf, or put a line into the .pgpass of the server's system user"
    )


def _silence(survey: Survey, state: HostState) -> Iterator[str]:
    if state.host != HOST:
        yield f'the recorded host is "{state.host}": no beat of pg_cron has come yet'
    if state.last_pass_at is None:
        yield "no pass was ever made"
    elif (since := state.now - state.last_pass_at) > max(LEAST_SILENCE, survey.beat * BEATS_OF_SILENCE):
        yield f"no pass for {format_duration(timedelta(seconds=round(since.total_seconds())))}: the jobs do not run"
    if state.horizon_ends_at is not None and state.horizon_ends_at <= state.now:
        yield (
            f"nothing is planned any more for {state.horizon_ends_first}"
            ' (see view sched.horizon): run a worker, or "sched tick --once"'
        )

"""Which pg_cron jobs are wanted, how the installed ones differ, and the script that makes them. Pure.

pg_cron supplies a beat and nothing else. Its commands are fixed texts of ours, and its schedules one of three fixed
ones: no name, payload or expression of a user reaches its parser, which 1.4 to 1.6 misread in ways of their own. The
one text from outside is the name of the database, an argument that is quoted here and nowhere interpreted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

HOST = "pg_cron"
PREFIX = "sched"


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A release of pg_cron, as far as it matters: what its extension script brought."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Version(1, 3)
"""The first with named jobs."""
IN_DATABASE_SINCE = Version(1, 4)
SECONDS_SINCE = Version(1, 5)
ASSUMED = Version(1, 4)
"""What a script is made for when nobody can tell the version: it runs on every later one too."""

SLOW_BEAT = timedelta(minutes=1)
FAST_BEAT = timedelta(seconds=5)
KEPT_HISTORY = "1 day"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronJob:
    """A named job of pg_cron."""

    name: str
    schedule: str
    command: str
    database: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledJob:
    """A row of ``cron.job``. ``port`` is the server's when the job was made, and where pg_cron connects to run it."""

    id: int
    name: str
    schedule: str
    command: str
    database: str
    role: str
    is_active: bool
    port: int


class DriftKind(StrEnum):
    """How an installed job can differ from a wanted one."""

    MISSING = "missing"
    CHANGED = "changed"
    PAUSED = "paused"
    SURPLUS = "surplus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference; ``installed`` is None when the job is missing, ``wanted`` when it is one too many."""

    kind: DriftKind
    wanted: CronJob | None
    installed: InstalledJob | None
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.wanted is None:
            assert self.installed is not None
            return f"{self.installed.name} is not wanted any more"
        if self.installed is None:
            return f"{self.wanted.name} is missing"
        if self.kind is DriftKind.PAUSED:
            return f"{self.wanted.name} is paused (active is false)"
        return f"{self.wanted.name} differs: {'; '.join(self.differences)}"


def parse_version(text: str) -> Version:
    """The version from ``pg_extension.extversion``: Debian's 1.4.2 calls itself ``1.4-1``. Raises ValueError."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f'"{text[:40]}" is not a version of pg_cron')
    return Version(int(found[1]), int(found[2]))


def beat_of(version: Version) -> timedelta:
    """How often this version can call us: seconds came with 1.5, before that a minute is the least."""
    return FAST_BEAT if version >= SECONDS_SINCE else SLOW_BEAT


def wanted_jobs(version: Version, database: str, cron_database: str) -> tuple[CronJob, ...]:
    """The jobs that make pg_cron the host of the schedules in ``database``, in the order of their names.

    The purge runs where pg_cron keeps its history, the others where the schedules are.
    """
    every = f"{FAST_BEAT.seconds} seconds" if version >= SECONDS_SINCE else "* * * * *"
    beat, purge, reap = (job_name(kind, database) for kind in ("beat", "purge", "reap"))
    return (
        CronJob(name=beat, schedule=every, command="call sched.beat()", database=database),
        CronJob(name=purge, schedule="17 * * * *", command=_purge_command((beat, purge, reap)), database=cron_database),
        CronJob(name=reap, schedule=every, command="select sched.reap('pg_cron')", database=database),
    )


def job_name(kind: str, database: str) -> str:
    """The name of a job: unique per database, because a role's jobs of one name are one job, and within 63 bytes.

    The database stands in it as a digest, so that a name is plain text whatever the database is called.
    """
    return f"{PREFIX}-{kind}-{hashlib.sha256(database.encode()).hexdigest()[:8]}"


def compare(wanted: Sequence[CronJob], installed: Sequence[InstalledJob], port: int) -> list[Drift]:
    """How the jobs of one role differ from the wanted ones, by name; empty when nothing is to be done.

    ``port`` is the server's now: after it was changed, by hand or by an upgrade, old jobs cannot connect any more.
    """
    by_name = {job.name: job for job in installed}
    found = [drift for job in wanted if (drift := _compared(job, by_name.get(job.name), port)) is not None]
    names = {job.name for job in wanted}
    surplus = [job for job in installed if job.name not in names]
    return found + [Drift(kind=DriftKind.SURPLUS, wanted=None, installed=job) for job in surplus]


def script(version: Version, database: str, cron_database: str, jobs: Sequence[CronJob]) -> str:
    """The SQL that installs ``jobs``, for psql: the same for the same arguments, repeatable, in one transaction."""
    names = ", ".join(quoted(job.name) for job in jobs)
    is_as_wanted = "\n         or ".join(
        f"(j.jobname = {quoted(job.name)} and j.database = {quoted(job.database)})" for job in jobs
    )
    calls = "\n".join(_call(job, cron_database) for job in jobs)
    grants = "".join(f"--   {statement}\n" for statement in documented_grants(database, cron_database))
    return f"""\
-- pg_cron {version} as the host of the schedules of sched in database {_shown(database)}.
-- Run it by psql, connected to database {_shown(cron_database)}, as the role whose jobs these shall be:
--   psql -v ON_ERROR_STOP=1 -f THIS_FILE
-- It may be repeated. Without superuser that role needs:
{grants}-- pg_cron reads schedules in GMT. That does not matter here: it only calls us {_every(version)}, and every date
-- was planned in its schedule's own time zone. The first beat records the new host; then run "sched tick --once", or
-- have a worker running, so that dates are planned far enough ahead.
set standard_conforming_strings = on;
begin;

-- A job of the same name keeps its pause, its database and the server's port, so one that differs in these goes first.
select cron.unschedule(j.jobid)
from cron.job j
where j.username = current_user
  and j.jobname in ({names})
  and not (j.active and j.nodeport = current_setting('port')::integer and (
         {is_as_wanted}));

{calls}

commit;
"""


def documented_grants(database: str, cron_database: str) -> list[str]:
    """What a role without superuser must be granted, with ROLE in place of its name."""
    there = f"in database {_shown(cron_database)}: "
    here = f"in database {_shown(database)}: "
    grants = [f"{there}grant usage on schema cron to ROLE;"]
    if database != cron_database:
        grants.append(
            f"{there}grant execute on function "
            "cron.schedule_in_database(text, text, text, text, text, boolean) to ROLE;"
        )
    return [
        *grants,
        f"{here}grant usage on schema sched to ROLE;",
        f"{here}grant select, insert, update, delete on all tables in schema sched to ROLE;",
    ]


def quoted(text: str) -> str:
    """``text`` as an SQL literal, where ``standard_conforming_strings`` is on."""
    return "'" + text.replace("'", "''") + "'"


def quoted_identifier(text: str) -> str:
    """``text`` as an SQL identifier, quoted where it must be."""
    return text if re.fullmatch(r"[a-z_][a-z0-9_]*", text) else '"' + text.replace('"', '""') + '"'


def _compared(wanted: CronJob, installed: InstalledJob | None, port: int) -> Drift | None:
    if installed is None:
        return Drift(kind=DriftKind.MISSING, wanted=wanted, installed=None)
    if differences := tuple(_differences(wanted, installed, port)):
        return Drift(kind=DriftKind.CHANGED, wanted=wanted, installed=installed, differences=differences)
    if not installed.is_active:
        return Drift(kind=DriftKind.PAUSED, wanted=wanted, installed=installed)
    return None


def _differences(wanted: CronJob, installed: InstalledJob, port: int) -> Iterator[str]:
    for field in ("schedule", "command", "database"):
        is_now, should_be = getattr(installed, field), getattr(wanted, field)
        if is_now != should_be:
            yield f"{field} is {json.dumps(is_now)}, wanted {json.dumps(should_be)}"
    if installed.port != port:
        yield f"it connects to port {installed.port}, and the server has {port}"


def _purge_command(names: Sequence[str]) -> str:
    """Forget old runs of our own jobs. A run that could not connect has no times: it is as old as its neighbours."""
    listed = ", ".join(quoted(name) for name in names)
    return (
        "delete from cron.job_run_details d using cron.job j "
        f"where d.jobid = j.jobid and j.jobname in ({listed}) "
        f"and (d.start_time < now() - interval '{KEPT_HISTORY}' or d.start_time is null and d.runid < "
        "(select min(r.runid) from cron.job_run_details r "
        f"where r.start_time > now() - interval '{KEPT_HISTORY}'))"
    )


def _call(job: CronJob, cron_database: str) -> str:
    arguments = [job.name, job.schedule, job.command]
    function = "schedule"
    if job.database != cron_database:
        arguments.append(job.database)
        function = "schedule_in_database"
    return f"select cron.{function}({', '.join(quoted(argument) for argument in arguments)});"


def _every(version: Version) -> str:
    return f"every {FAST_BEAT.seconds} seconds" if version >= SECONDS_SINCE else "every minute"


def _shown(database: str) -> str:
    """A name for a comment: on one line, whatever is in it."""
    return json.dumps(database)

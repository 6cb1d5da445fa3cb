"""``sched install-pg-cron``: make PostgreSQL itself the ticker, show how, compare, or stop it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.core.time.durations import format_duration
from scheduler.errors import ConfigError
from scheduler.interfaces.cli.options import Dsn, Json
from scheduler.interfaces.cli.output import ago, counted, print_json, print_line, print_table, print_text, say
from scheduler.interfaces.cli.session import opened, settings_of

if TYPE_CHECKING:
    from scheduler.core.pgcron import Drift
    from scheduler.services.pgcron import Findings, Survey
    from scheduler.services.planner import Planner
    from scheduler.storage.database import Connection, Database
    from scheduler.storage.pgcron import HostState

app = typer.Typer(rich_markup_mode=None)

FINDINGS = 1
NAMES_SHOWN = 5
PLAN_INTERVAL = timedelta(seconds=30)


@app.command("install-pg-cron")
def install_pg_cron(
    context: typer.Context,
    printing: Annotated[
        bool, typer.Option("--print", help="Print the SQL for another role to run; changes nothing.")
    ] = False,
    checking: Annotated[
        bool, typer.Option("--check", help="Compare with what is installed; exit code 1 if it differs or fails.")
    ] = False,
    removing: Annotated[
        bool, typer.Option("--uninstall", help='Remove our own jobs; schedules then need "sched tick".')
    ] = False,
    cron_dsn: Annotated[
        str | None,
        typer.Option(
            "--cron-dsn",
            metavar="DSN",
            show_default="found by itself",
            help="Database in which pg_cron is installed, where that is another one.",
        ),
    ] = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Let pg_cron in the server call sched, instead of a "sched tick" process. Repeating it changes nothing.

    Dates are planned as far ahead as pg_cron needs them. Workers extend that; see docs/pg-cron.md.

    \b
      sched install-pg-cron
      sched install-pg-cron --check
      sched install-pg-cron --print > jobs.sql
      sched install-pg-cron --uninstall
    """
    from scheduler.storage.database import Database

    if sum((printing, checking, removing)) > 1:
        raise ConfigError("give one of --print, --check and --uninstall")
    if printing and as_json:
        raise ConfigError("--print prints SQL and --json a document; give one of them")
    given = None if cron_dsn is None else Database(cron_dsn)
    actor = settings_of(context, dsn).actor
    # Grants are looked at before the schema, so that a missing one is named.
    with opened(context, dsn, needs_schema=False) as database, database.connection() as here:
        if printing:
            _print_script(here, database, given)
        elif checking:
            _check(here, database, given, as_json)
        elif removing:
            _uninstall(here, database, given, actor, as_json)
        else:
            _install(here, database, given, actor, as_json)


def plan_to_horizon(connection: Connection, planner: Planner | None = None) -> int:
    """Plan until the host's horizon is reached; returns how many dates that took. Cheap when it is reached already."""
    from scheduler.interfaces.cli.loops import process_name
    from scheduler.services.planner import Planner

    planner = planner or Planner(by=process_name("plan"))
    dates = 0
    while (planned := planner.run_once(connection)).schedules:
        dates += planned.dates
    return dates


def keep_planned(database: Database, stop: threading.Event) -> None:
    """Extend the horizon every ``PLAN_INTERVAL`` until ``stop`` is set: what a worker does beside its work."""
    from scheduler.interfaces.cli.loops import process_name
    from scheduler.services.loop import run_every
    from scheduler.services.planner import Planner

    planner = Planner(by=process_name("plan"))

    def plan_once(connection: Connection) -> None:
        plan_to_horizon(connection, planner)

    run_every(plan_once, database=database, interval=PLAN_INTERVAL, stop=stop)


def _print_script(here: Connection, database: Database, given: Database | None) -> None:
    from scheduler.services.pgcron import printed

    print_text(printed(here, database, given))


def _install(here: Connection, database: Database, given: Database | None, actor: str, as_json: bool) -> None:
    from scheduler.services.pgcron import cron_connection, install, look, take_over
    from scheduler.storage.migrations import require_schema

    with cron_connection(here, database, given) as there:
        survey = look(here, there)
        require_schema(here)
        _warn(survey.warnings)
        take_over(here, actor)
        planned = plan_to_horizon(here)
        installed = install(here, there, survey)
    _warn_of_hasty(survey, installed.state)
    if as_json:
        print_json(
            _survey_document(survey)
            | {"changed": [_drift_document(drift) for drift in installed.changed], "planned": planned}
            | _state_document(installed.state)
        )
        return
    for drift in installed.changed:
        name = drift.wanted.name if drift.wanted is not None else drift.installed and drift.installed.name
        print_line(f"{name}: {_DONE[drift.kind]}")
    print_line(
        f"pg_cron {survey.version} in database {survey.cron_database} calls {survey.database} every "
        f"{format_duration(survey.beat)} as {survey.role}: "
        + (f"{counted(len(installed.changed), 'job')} changed" if installed.changed else "nothing to change")
    )
    print_line(f"{counted(planned, 'date')} planned; {_horizon_text(installed.state)}")
    if installed.changed:
        say('whether pg_cron may connect shows after its first beat: "sched install-pg-cron --check"')


def _check(here: Connection, database: Database, given: Database | None, as_json: bool) -> None:
    from scheduler.services.pgcron import check, cron_connection

    with cron_connection(here, database, given) as there:
        findings = check(here, there)
    _warn_of_hasty(findings.survey, findings.state)
    _warn(findings.survey.warnings)
    if as_json:
        print_json(
            _survey_document(findings.survey)
            | {
                "drift": [_drift_document(drift) for drift in findings.drift],
                "troubles": list(findings.troubles),
            }
            | _state_document(findings.state)
        )
    else:
        _print_findings(findings)
    if findings.drift or findings.troubles:
        raise typer.Exit(FINDINGS)


def _uninstall(here: Connection, database: Database, given: Database | None, actor: str, as_json: bool) -> None:
    from scheduler.services.pgcron import PgCronMissing, cron_connection, look, release, uninstall

    others = 0
    try:
        with cron_connection(here, database, given) as there:
            survey = look(here, there)
            removed = [job.name for job in uninstall(here, there, survey, actor)]
            others = len(survey.others)
    except PgCronMissing:
        removed = []
        release(here, actor)
    if as_json:
        print_json({"removed": removed, "others": others})
        return
    for name in removed:
        print_line(f"{name}: removed")
    if others:
        say(f"{counted(others, 'job')} of other roles stay and beat these schedules")
    else:
        say('the host is now the ticker: run "sched tick"')


_DONE = {"missing": "installed", "changed": "changed", "paused": "installed anew, it was paused", "surplus": "removed"}


def _print_findings(findings: Findings) -> None:
    survey = findings.survey
    print_table(
        ("job", "schedule", "command", "database", "role", "active"),
        [
            (job.name, job.schedule, job.command[:40], job.database, job.role, job.is_active)
            for job in (*survey.own, *survey.others)
        ],
        empty=f"no jobs of ours are visible to {survey.role}; those of other roles only a superuser sees",
    )
    for finding in (*findings.drift, *findings.troubles):
        print_line(str(finding))
    if survey.others:
        say(f"{len(survey.others)} of these jobs belong to other roles: two beats do no harm, one is enough")
    say(_horizon_text(findings.state))
    if not (findings.drift or findings.troubles):
        print_line("as wanted")


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        say(f"warning: {warning}")


def _warn_of_hasty(survey: Survey, state: HostState) -> None:
    if state.hasty:
        names = ", ".join(state.hasty[:NAMES_SHOWN]) + (" and others" if len(state.hasty) > NAMES_SHOWN else "")
        say(
            f"warning: the grace of {names} does not exceed this host's beat of {format_duration(survey.beat)}: "
            "dates in time may count as late"
        )


def _horizon_text(state: HostState) -> str:
    if state.horizon_ends_at is None:
        return "no schedule has further dates"
    return f"planned dates end first for {state.horizon_ends_first}, {ago(state.horizon_ends_at, state.now)}"


def _survey_document(survey: Survey) -> dict[str, Any]:
    return {
        "version": str(survey.version),
        "database": survey.database,
        "cron_database": survey.cron_database,
        "role": survey.role,
        "beat": survey.beat,
        "jobs": [asdict(job) for job in survey.wanted],
        "others": [asdict(job) for job in survey.others],
        "warnings": list(survey.warnings),
    }


def _drift_document(drift: Drift) -> dict[str, Any]:
    job = drift.wanted or drift.installed
    return {"job": job and job.name, "kind": drift.kind, "text": str(drift)}


def _state_document(state: HostState) -> dict[str, Any]:
    return {
        "host": state.host,
        "last_pass_at": state.last_pass_at,
        "horizon_ends_at": state.horizon_ends_at,
        "horizon_ends_first": state.horizon_ends_first,
        "hasty": state.hasty,
    }

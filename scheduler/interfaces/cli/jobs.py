"""Commands about jobs: enqueue, list, show, retry, hold, release, cancel. Who did what, and why, is kept as events."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from scheduler.errors import ConfigError, NotFound
from scheduler.interfaces.cli.options import (
    LARGEST_ID,
    PRIORITIES,
    Dsn,
    Json,
    Reason,
    choice,
    duration,
    json_object,
    moment,
    number,
    whole,
)
from scheduler.interfaces.cli.output import print_facts, print_json, print_line, print_table
from scheduler.interfaces.cli.session import by, connected

app = typer.Typer(rich_markup_mode=None)
jobs = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Look at jobs and make them run again.")

FINDINGS = 1
LIST_LIMIT = 100_000
ERROR_SHOWN = 60

JobIds = Annotated[list[int], typer.Argument(metavar="ID...", parser=number, help="The numbers of jobs.")]
JobId = Annotated[int, typer.Argument(metavar="ID", parser=number, help="The number of a job.")]


@app.command()
def enqueue(
    context: typer.Context,
    job_type: Annotated[str, typer.Argument(metavar="JOB", help="A registered handler, such as ingest.daily.")],
    payload: Annotated[str, typer.Option("--payload", metavar="JSON", help="An object; the handler's input.")] = "{}",
    queue: Annotated[str, typer.Option("--queue", metavar="NAME")] = "default",
    priority: Annotated[int, typer.Option("--priority", parser=number, metavar="N", help="Smaller goes first.")] = 100,
    at: Annotated[
        str | None, typer.Option("--at", metavar="INSTANT", show_default="now", help="Not before this instant.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="TEXT", show_default=False, help="Idempotency key: a second job is not made."),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="KEY", show_default=False, help="A limit of the definition files to obey."),
    ] = None,
    max_attempts: Annotated[int, typer.Option("--max-attempts", parser=number, metavar="N")] = 5,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="DURATION", show_default="none")] = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Make one job that belongs to no schedule.

    \b
      sched enqueue report.build --payload '{"month": "2026-03"}' --key report:2026-03
      sched enqueue mail.send --at 2026-03-01T08:00:00Z
    """
    from scheduler.core.new_job import MOST_ATTEMPTS, SHORTEST_TIMEOUT, NewJob
    from scheduler.services.enqueue import enqueue_job

    job = NewJob(
        job_type=_required(job_type, "JOB"),
        payload=json_object(payload, "--payload"),
        queue=_required(queue, "--queue"),
        priority=whole(priority, "--priority", *PRIORITIES),
        run_at=None if at is None else _instant(at, "--at"),
        idempotency_key=None if key is None else _required(key, "--key"),
        limit=None if limit is None else _required(limit, "--limit"),
        max_attempts=whole(max_attempts, "--max-attempts", 1, MOST_ATTEMPTS),
        timeout=None if timeout is None else duration(timeout, "--timeout", least=SHORTEST_TIMEOUT),
    )
    with connected(context, dsn) as connection:
        made = enqueue_job(connection, job)
    if as_json:
        print_json({"job": made.id, "created": made.is_created})
    else:
        print_line(f"job {made.id}" + ("" if made.is_created else f" has the key {key} already"))


@jobs.command("list")
def list_jobs(
    context: typer.Context,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", show_default="all", help="For example dead or running.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", metavar="NAME", show_default="all", help="Only of this schedule.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", show_default="all")] = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=number, metavar="N", help="At most so many, the newest.")
    ] = 50,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first.

    \b
      sched jobs list --status dead
      sched jobs list --schedule daily-ingest --limit 5 --json
    """
    from scheduler.core.models import JobStatus
    from scheduler.storage.status import JobFilter
    from scheduler.storage.status import list_jobs as read_jobs

    if status is not None:
        choice(status, "--status", [known.value for known in JobStatus])
    wanted = JobFilter(status=status, schedule=schedule, queue=queue, limit=whole(limit, "--limit", 1, LIST_LIMIT))
    with connected(context, dsn) as connection:
        found = read_jobs(connection, wanted)
    if as_json:
        print_json({"jobs": [asdict(job) for job in found]})
        return
    print_table(
        ("id", "status", "job", "schedule", "logical date", "attempts", "queue", "error"),
        [
            (
                job.id,
                job.status,
                job.job_type,
                job.schedule,
                job.logical_date,
                f"{job.attempt_count}/{job.max_attempts}",
                job.queue,
                _shortened(job.last_error),
            )
            for job in found
        ],
        empty="no jobs",
    )


@jobs.command("show")
def show_job(context: typer.Context, job: JobId, dsn: Dsn = None, as_json: Json = False) -> None:
    """Show one job. With its attempts and what was done to it.

    \b
      sched jobs show 17
    """
    from scheduler.storage.status import attempts_of, events_of, find_job

    whole(job, "ID", 1, LARGEST_ID)
    with connected(context, dsn) as connection:
        found = find_job(connection, job)
        if found is None:
            raise NotFound(f'there is no job {job}; "sched jobs list" shows them')
        attempts, events = attempts_of(connection, job), events_of(connection, job)
    if as_json:
        print_json(
            asdict(found)
            | {"attempts": [asdict(attempt) for attempt in attempts], "events": [asdict(event) for event in events]}
        )
        return
    print_facts({name.replace("_", " "): value for name, value in asdict(found).items()})
    if attempts:
        print_line()
        print_table(
            ("attempt", "outcome", "began", "took", "worker", "error"),
            [
                (each.number, each.outcome, each.started_at, each.ended_at - each.started_at, each.worker, each.error)
                for each in attempts
            ],
            empty="",
        )
    if events:
        print_line()
        print_table(
            ("at", "event", "by", "reason"),
            [(event.at, event.kind, event.actor, event.reason) for event in events],
            empty="",
        )


@jobs.command("retry")
def retry_jobs(
    context: typer.Context,
    ids: JobIds,
    reason: Reason = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Make dead, cancelled or held jobs run again. With at least one attempt more. Exit code 1 if one is neither.

    \b
      sched jobs retry 17 18 --reason "the source is back"
    """
    _steer(context, dsn, "retry", ids, reason, as_json=as_json)


@jobs.command("hold")
def hold_jobs(
    context: typer.Context,
    ids: JobIds,
    reason: Reason = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Keep jobs that have not started from starting. Until they are released; exit code 1 if one has started.

    \b
      sched jobs hold 17 --reason "the source is being repaired"
    """
    _steer(context, dsn, "hold", ids, reason, as_json=as_json)


@jobs.command("release")
def release_jobs(
    context: typer.Context,
    ids: JobIds,
    reason: Reason = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Let held jobs go on, whoever held them. Exit code 1 if one is not held.

    \b
      sched jobs release 17
    """
    _steer(context, dsn, "release", ids, reason, as_json=as_json)


@jobs.command("cancel")
def cancel_jobs(
    context: typer.Context,
    ids: JobIds,
    reason: Reason = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Cancel jobs. A running one is asked to stop and loses its lease after 30 seconds; exit code 1 if one has ended.

    \b
      sched jobs cancel 17 --reason "sent by mistake"
    """
    _steer(context, dsn, "cancel", ids, reason, as_json=as_json)


def _steer(
    context: typer.Context, dsn: str | None, action: str, ids: list[int], reason: str | None, *, as_json: bool
) -> None:
    from scheduler.services.operate import DONE, steer_jobs

    for job_id in ids:
        whole(job_id, "ID", 1, LARGEST_ID)
    with connected(context, dsn) as connection:
        outcomes = steer_jobs(connection, action, ids, by(context, dsn, reason))
    if as_json:
        print_json({"jobs": [{"id": job_id, "outcome": outcome} for job_id, outcome in outcomes.items()]})
    else:
        for job_id, outcome in outcomes.items():
            print_line(f"job {job_id}: {outcome}" + ("" if outcome in DONE[action] else f", needs no {action}"))
    if not set(outcomes.values()) <= DONE[action]:
        raise typer.Exit(FINDINGS)


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= ERROR_SHOWN else f"{text[: ERROR_SHOWN - 3]}..."


def _required(text: str, flag: str) -> str:
    from scheduler.core.new_job import name_fault

    if fault := name_fault(text):
        raise ConfigError(f"{flag}: {fault}")
    return text


def _instant(text: str, flag: str) -> datetime:
    found = moment(text, flag)
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise ConfigError(f'{flag}: "{text}" does not say in which zone: write an instant like 2026-01-31T08:30:00Z')
    return found

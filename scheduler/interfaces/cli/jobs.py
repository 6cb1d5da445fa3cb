"""Commands about jobs: enqueue, list, show; ``job_actions`` adds those that change jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from scheduler.core.jobs.progress import describe_progress
from scheduler.core.models import PRIORITIES
from scheduler.errors import NotFound
from scheduler.interfaces.cli import job_actions
from scheduler.interfaces.cli.options import (
    LARGEST_ID,
    Dsn,
    Json,
    choice,
    duration,
    instant,
    json_object,
    number,
    required,
    whole,
)
from scheduler.interfaces.cli.output import print_facts, print_json, print_line, print_table
from scheduler.interfaces.cli.session import connected

app = typer.Typer(rich_markup_mode=None)
jobs = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Look at jobs and make them run again.")
jobs.add_typer(job_actions.app)

LIST_LIMIT = 100_000
ERROR_SHOWN = 60

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
    from scheduler.core.jobs.new_job import MOST_ATTEMPTS, SHORTEST_TIMEOUT, NewJob
    from scheduler.services.enqueue import enqueue_job

    job = NewJob(
        job_type=required(job_type, "JOB"),
        payload=json_object(payload, "--payload"),
        queue=required(queue, "--queue"),
        priority=whole(priority, "--priority", *PRIORITIES),
        run_at=None if at is None else instant(at, "--at"),
        idempotency_key=None if key is None else required(key, "--key"),
        limit=None if limit is None else required(limit, "--limit"),
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
        ("id", "status", "job", "schedule", "logical date", "attempts", "queue", "progress", "error"),
        [
            (
                job.id,
                job.status,
                job.job_type,
                job.schedule,
                job.logical_date,
                f"{job.attempt_count}/{job.max_attempts}",
                job.queue,
                _shortened(describe_progress(job.progress, job.progress_note)) if job.status == "running" else None,
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
    facts = asdict(found) | {"progress": describe_progress(found.progress, found.progress_note), "progress_note": None}
    print_facts({name.replace("_", " "): value for name, value in facts.items()})
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
            ("at", "event", "by", "reason", "details"),
            [(event.at, event.kind, event.actor, event.reason, _details(event.details)) for event in events],
            empty="",
        )


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= ERROR_SHOWN else f"{text[: ERROR_SHOWN - 3]}..."


def _details(details: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{name} {value}" for name, value in details.items()) or None

"""Commands of operators: look at jobs and schedules, enqueue, retry, pause, resume, trigger; who and why is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.errors import ConfigError, NotFound
from scheduler.interfaces.cli.options import (
    PRIORITIES,
    Dsn,
    Json,
    Reason,
    choice,
    duration,
    moment,
    number,
    whole,
)
from scheduler.interfaces.cli.output import print_facts, print_json, print_line, print_table, say
from scheduler.interfaces.cli.session import connected, settings_of

if TYPE_CHECKING:
    from scheduler.services.backfill import BackfillResult
    from scheduler.storage.database import Connection
    from scheduler.storage.operating import By
    from scheduler.storage.status import ScheduleLine

app = typer.Typer(rich_markup_mode=None)
jobs = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Look at jobs and make them run again.")
schedules = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Look at schedules, pause, resume and trigger them."
)

FINDINGS = 1
LARGEST_ID = 2**63 - 1
LIST_LIMIT = 100_000
ERROR_SHOWN = 60

JobId = Annotated[int, typer.Argument(metavar="ID", parser=number, help="The number of a job.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a schedule.")]


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
    from scheduler.services.operate import enqueue_job
    from scheduler.storage.operating import NewJob

    job = NewJob(
        job_type=_required(job_type, "JOB"),
        payload=_object(payload),
        queue=_required(queue, "--queue"),
        priority=whole(priority, "--priority", *PRIORITIES),
        run_at=None if at is None else _instant(at, "--at"),
        idempotency_key=None if key is None else _required(key, "--key"),
        limit_key=None if limit is None else _required(limit, "--limit"),
        max_attempts=whole(max_attempts, "--max-attempts", 1, 1000),
        timeout=None if timeout is None else duration(timeout, "--timeout", least=timedelta(milliseconds=1)),
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
    ids: Annotated[list[int], typer.Argument(metavar="ID...", parser=number, help="The numbers of jobs.")],
    reason: Reason = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Make dead, cancelled or held jobs run again. With at least one attempt more. Exit code 1 if one is neither.

    \b
      sched jobs retry 17 18 --reason "the source is back"
    """
    from scheduler.services.operate import retry_jobs as retry

    for job_id in ids:
        whole(job_id, "ID", 1, LARGEST_ID)
    with connected(context, dsn) as connection:
        outcomes = retry(connection, ids, _by(context, dsn, reason))
    if as_json:
        print_json({"jobs": [{"id": job_id, "outcome": outcome} for job_id, outcome in outcomes.items()]})
    else:
        for job_id, outcome in outcomes.items():
            print_line(f"job {job_id}: {outcome}" + ("" if outcome == "retried" else ", needs no retry"))
    if set(outcomes.values()) != {"retried"}:
        raise typer.Exit(FINDINGS)


@schedules.command("list")
def list_schedules(
    context: typer.Context,
    retired: Annotated[bool, typer.Option("--retired", help="Retired ones too.")] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """List schedules. With their rule, what is due next and how the latest date was decided.

    \b
      sched schedules list
    """
    from scheduler.storage.status import list_schedules as read_schedules

    with connected(context, dsn) as connection:
        found = [line for line in read_schedules(connection) if retired or line.retired_at is None]
    if as_json:
        print_json({"schedules": [_schedule_document(line) for line in found]})
        return
    print_table(
        ("name", "rule", "timezone", "state", "next due", "latest date", "decided"),
        [
            (
                line.name,
                _rule(line.definition),
                line.definition["timing"]["timezone"],
                _state(line),
                line.next_due_at,
                line.last_logical_date,
                _decision(line),
            )
            for line in found
        ],
        empty='no schedules yet; "sched apply" reads them from files',
    )


@schedules.command("pause")
def pause_schedule(
    context: typer.Context,
    name: Name,
    keep: Annotated[bool, typer.Option("--keep", help="Leave its dates undecided until resume.")] = False,
    reason: Reason = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Stop a schedule from firing. From now on; its dates are skipped, or kept for later with --keep.

    \b
      sched schedules pause daily-ingest --reason "source is down"
    """
    from scheduler.services.operate import pause_schedule as pause

    with connected(context, dsn) as connection:
        outcome = pause(connection, name, _by(context, dsn, reason), keep=keep)
    _print_outcome(name, outcome, as_json)


@schedules.command("resume")
def resume_schedule(
    context: typer.Context, name: Name, reason: Reason = None, dsn: Dsn = None, as_json: Json = False
) -> None:
    """End the pause of a schedule. Kept dates are decided now, by its catch-up policy.

    \b
      sched schedules resume daily-ingest
    """
    from scheduler.services.operate import resume_schedule as resume

    with connected(context, dsn) as connection:
        outcome = resume(connection, name, _by(context, dsn, reason))
    _print_outcome(name, outcome, as_json)


@schedules.command("trigger")
def trigger_schedule(
    context: typer.Context,
    name: Name,
    when: Annotated[
        str | None,
        typer.Option("--date", metavar="WHEN", show_default=False, help="Fill this logical date, as backfill does."),
    ] = None,
    reason: Reason = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Make a job of a schedule now. Or of one past date that has none; its overlap policy holds.

    \b
      sched schedules trigger daily-ingest --reason "check the fix"
      sched schedules trigger daily-ingest --date 2026-03-14
    """
    from scheduler.services.operate import trigger_schedule as trigger

    by = _by(context, dsn, reason)
    with connected(context, dsn) as connection:
        if when is not None:
            _trigger_date(connection, name, when, by, as_json)
            return
        made = trigger(connection, name, by)
    if as_json:
        print_json({"schedule": name, "outcome": made.outcome, "job": made.job_id})
    elif made.job_id is not None:
        print_line(f"{name}: job {made.job_id}")
    else:
        say(f"{name}: nothing was made, an earlier job of it is unfinished and its overlap policy forbids another")
    if made.job_id is None:
        raise typer.Exit(FINDINGS)


def _trigger_date(connection: Connection, name: str, when: str, by: By, as_json: bool) -> None:
    from scheduler.core.moments import instant_text
    from scheduler.services.operate import find_date

    logical_date = find_date(connection, name, moment(when, "--date"))
    result = _fill_date(connection, name, logical_date, by)
    outcome = "inserted" if result.inserted else "key_taken" if result.key_taken else "already"
    if as_json:
        print_json({"schedule": name, "logical_date": logical_date, "outcome": outcome, "backfill": result.id})
    else:
        said = {
            "inserted": "a job was made",
            "already": "is settled or under way already; nothing was made",
            "key_taken": "its idempotency key belongs to another job; nothing was made",
        }
        print_line(f"{name} {instant_text(logical_date)}: {said[outcome]}")
    if outcome == "key_taken":
        raise typer.Exit(FINDINGS)


def _fill_date(connection: Connection, name: str, logical_date: datetime, by: By) -> BackfillResult:
    from scheduler.core.gaps import GapKind
    from scheduler.core.moments import instant_text
    from scheduler.services.backfill import BackfillRequest, fill_gaps
    from scheduler.services.gaps import GapRequest, find_gaps
    from scheduler.storage.database import database_now

    until = logical_date + timedelta(microseconds=1)
    if until > database_now(connection):
        raise ConfigError(f"{instant_text(logical_date)} has not come yet; it will fire by itself")
    report = find_gaps(
        connection, GapRequest(since=logical_date, until=until, schedules=[name], kinds=frozenset(GapKind))
    )
    request = BackfillRequest(
        actor=by.actor, reason=by.reason, since=instant_text(logical_date), until=None, schedules=[name]
    )
    return fill_gaps(connection, report.gaps, report.settled, request)


def _by(context: typer.Context, dsn: str | None, reason: str | None) -> By:
    from scheduler.storage.operating import By

    return By(actor=settings_of(context, dsn).actor, reason=reason)


def _print_outcome(name: str, outcome: str, as_json: bool) -> None:
    if as_json:
        print_json({"schedule": name, "outcome": outcome})
    else:
        print_line(f"{name}: {outcome.replace('_', ' ')}")


def _schedule_document(line: ScheduleLine) -> dict[str, Any]:
    paused = None
    if line.paused_at is not None:
        paused = {
            "since": line.paused_at,
            "keep": line.is_pause_keeping,
            "by": line.paused_by,
            "reason": line.pause_reason,
        }
    latest = None
    if line.last_logical_date is not None:
        latest = {"logical_date": line.last_logical_date, "state": line.last_state, "reason": line.last_reason}
    return {
        "name": line.name,
        "owner": line.owner,
        "revision": line.revision,
        "file": line.file,
        "rule": line.definition["timing"]["rule"],
        "timezone": line.definition["timing"]["timezone"],
        "job": line.job_type,
        "queue": line.queue,
        "retired_at": line.retired_at,
        "paused": paused,
        "next_due_at": line.next_due_at,
        "latest": latest,
    }


def _rule(definition: Mapping[str, Any]) -> str:
    """A rule in a few words, as its author would recognise it."""
    rule = definition["timing"]["rule"]
    if "cron" in rule:
        return str(rule["cron"])
    if "every" in rule:
        return f"every {rule['every'].removeprefix('PT').lower()}"
    if "at" in rule:
        return f"at {len(rule['at'])} moments"
    return next((line for line in rule["rrule"].splitlines() if "FREQ" in line), "rrule")


def _state(line: ScheduleLine) -> str:
    if line.retired_at is not None:
        return "retired"
    if line.paused_at is not None:
        return "paused, dates kept" if line.is_pause_keeping else "paused"
    return "active"


def _decision(line: ScheduleLine) -> str | None:
    if line.last_state is None:
        return None
    return f"{line.last_state} ({line.last_reason})" if line.last_reason else line.last_state


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= ERROR_SHOWN else f"{text[: ERROR_SHOWN - 3]}..."


def _required(text: str, flag: str) -> str:
    if not text.strip() or "\0" in text or len(text) > 1000:
        raise ConfigError(f"{flag}: write a text of 1 to 1000 characters")
    return text


def _instant(text: str, flag: str) -> datetime:
    found = moment(text, flag)
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise ConfigError(f'{flag}: "{text}" does not say in which zone: write an instant like 2026-01-31T08:30:00Z')
    return found


def _object(text: str) -> dict[str, Any]:
    from scheduler.core.storable import storable, storage_faults

    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--payload is not JSON: {error}") from error
    except RecursionError as error:
        raise ConfigError("--payload is nested too deeply") from error
    if not isinstance(found, dict):
        raise ConfigError('--payload must be a JSON object, like {"source": "orders"}')
    for path, fault in storage_faults(found):
        raise ConfigError(f"--payload{''.join(f'.{step}' for step in path)} {fault}")
    return storable(found)  # type: ignore[no-any-return]

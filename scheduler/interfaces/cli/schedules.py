"""Commands about schedules in the database: list, pause, resume, trigger, waive. Who and why is kept as events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.errors import ConfigError
from scheduler.interfaces.cli.options import Dsn, Json, Reason, moment
from scheduler.interfaces.cli.output import print_json, print_line, print_table, say
from scheduler.interfaces.cli.session import by, connected

if TYPE_CHECKING:
    from scheduler.services.backfill import BackfillResult
    from scheduler.storage.database import Connection
    from scheduler.storage.operating import By
    from scheduler.storage.status import ScheduleLine

schedules = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Look at schedules, pause, resume and trigger them."
)

FINDINGS = 1

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a schedule.")]


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
                "never" if _is_over(line) else line.next_due_at,
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
        outcome = pause(connection, name, by(context, dsn, reason), keep=keep)
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
        outcome = resume(connection, name, by(context, dsn, reason))
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

    asked = by(context, dsn, reason)
    with connected(context, dsn) as connection:
        if when is not None:
            _trigger_date(connection, name, when, asked, as_json)
            return
        made = trigger(connection, name, asked)
    if as_json:
        print_json({"schedule": name, "outcome": made.outcome, "job": made.job_id})
    elif made.job_id is not None:
        print_line(f"{name}: job {made.job_id}")
    else:
        say(f"{name}: nothing was made, an earlier job of it is unfinished and its overlap policy forbids another")
    if made.job_id is None:
        raise typer.Exit(FINDINGS)


@schedules.command("waive")
def waive_date(
    context: typer.Context,
    name: Name,
    date: Annotated[str, typer.Argument(metavar="DATE", help="A local date, a local time or an instant.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded with your name.")],
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Record that a date will not run. It is no gap any more; backfill leaves it alone without --include waived.

    Exit code 1 if the date has a job already: that stays as it is.

    \b
      sched schedules waive daily-ingest 2026-03-14 --reason "the source had no data that day"
    """
    from scheduler.core.time.moments import instant_text
    from scheduler.services.operate import waive_date as waive

    if not reason.strip():
        raise ConfigError("--reason: say why this date will not run")
    with connected(context, dsn) as connection:
        waived = waive(connection, name, moment(date, "DATE"), by(context, dsn, reason))
    if as_json:
        print_json({"schedule": name, "logical_date": waived.logical_date, "outcome": waived.outcome})
    else:
        said = {
            "waived": "waived",
            "already_waived": "was waived before",
            "enqueued": f'has a job and stays as it is; "sched explain {name} {date}" shows it',
        }
        print_line(f"{name} {instant_text(waived.logical_date)}: {said[waived.outcome]}")
    if waived.outcome == "enqueued":
        raise typer.Exit(FINDINGS)


def _trigger_date(connection: Connection, name: str, when: str, asked: By, as_json: bool) -> None:
    from scheduler.core.time.moments import instant_text
    from scheduler.services.operate import find_date

    logical_date = find_date(connection, name, moment(when, "--date"))
    result = _fill_date(connection, name, logical_date, asked)
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


def _fill_date(connection: Connection, name: str, logical_date: datetime, asked: By) -> BackfillResult:
    from scheduler.core.ledger.gaps import DEFAULT_KINDS, GapKind
    from scheduler.core.time.moments import instant_text
    from scheduler.services.backfill import BackfillRequest, fill_gaps
    from scheduler.services.gaps import GapRequest, find_gaps
    from scheduler.storage.database import database_now

    until = logical_date + timedelta(microseconds=1)
    if until > database_now(connection):
        raise ConfigError(f"{instant_text(logical_date)} has not come yet; it will fire by itself")
    report = find_gaps(
        connection,
        GapRequest(since=logical_date, until=until, schedules=[name], kinds=DEFAULT_KINDS | {GapKind.SKIPPED}),
    )
    request = BackfillRequest(
        actor=asked.actor, reason=asked.reason, since=instant_text(logical_date), until=None, schedules=[name]
    )
    return fill_gaps(connection, report.gaps, report.settled, request)


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
        "fires_again": not _is_over(line),
        "latest": latest,
    }


def _is_over(line: ScheduleLine) -> bool:
    """Whether no date will come any more, as for an expression that never matches, or a rule that has ended."""
    return line.next_due_at is None and not line.fires_again


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

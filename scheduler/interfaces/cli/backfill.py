"""``sched backfill``: make jobs for the gaps of a range. ``backfills`` looks after what was made."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.core.durations import format_duration
from scheduler.core.moments import instant_text
from scheduler.errors import ConfigError
from scheduler.interfaces.cli.gap_range import dated, find, gap_request, print_dates
from scheduler.interfaces.cli.options import (
    PRIORITIES,
    Dsn,
    Include,
    Json,
    Reason,
    Schedules,
    Until,
    choice,
    json_object,
    number,
    whole,
)
from scheduler.interfaces.cli.output import counted, print_json, print_line, progress, say
from scheduler.interfaces.cli.session import connected, settings_of

if TYPE_CHECKING:
    from scheduler.core.gaps import Gap
    from scheduler.services.backfill import BackfillResult
    from scheduler.services.gaps import GapReport
    from scheduler.storage.database import Connection

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)

FINDINGS = 1
MOST_ACTIVE = 10_000


@app.callback()
def backfill(
    context: typer.Context,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            show_default=False,
            help="First moment: a date, a local time or an instant; included. Needed.",
        ),
    ] = None,
    until: Until = None,
    schedule: Schedules = None,
    include: Include = None,
    order: Annotated[str, typer.Option("--order", metavar="asc|desc", help="Oldest or newest dates first.")] = "asc",
    max_active: Annotated[
        int | None,
        typer.Option(
            "--max-active", parser=number, metavar="N", show_default="no bound", help="How many jobs run at once."
        ),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            metavar="allow",
            show_default="one at a time, unless the schedule allows overlap",
            help="Let the jobs of a schedule run at once.",
        ),
    ] = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Also dates whose job has ended: a new generation, both results stay.")
    ] = False,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload", metavar="JSON", show_default=False, help="Merged over the payload of the definition."
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            parser=number,
            metavar="N",
            show_default="1000: after live jobs",
            help="Of the jobs; smaller goes first.",
        ),
    ] = None,
    reason: Reason = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be made.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal.")] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Make a job for every gap of a range. Dates that are settled are left alone, however often it is run.

    \b
      sched backfill --since 2026-01-01 --dry-run
      sched backfill --since 2026-03-01 --until 2026-04-01 --schedule daily-ingest --reason "late data"
      sched backfill list
    """
    if context.invoked_subcommand is not None:
        return
    from scheduler.services.backfill import DEFAULT_PRIORITY, BackfillRequest, BackfillResult, fill_gaps

    if since is None:
        raise ConfigError('backfill needs --since, or one of its commands ("sched backfill --help" shows how)')
    if overlap is not None:
        choice(overlap, "--overlap", ["allow"])
    wanted = gap_request(since, until, schedule, include, is_rerun=rerun)
    request = BackfillRequest(
        actor=settings_of(context, dsn).actor,
        since=since,
        until=until,
        schedules=schedule or None,
        reason=reason,
        priority=DEFAULT_PRIORITY if priority is None else whole(priority, "--priority", *PRIORITIES),
        is_descending=choice(order, "--order", ["asc", "desc"]) == "desc",
        is_overlap_allowed=overlap is not None,
        is_rerun=rerun,
        max_active=None if max_active is None else whole(max_active, "--max-active", 1, MOST_ACTIVE),
        payload=None if payload is None else json_object(payload, "--payload"),
    )
    with connected(context, dsn) as connection:
        report = find(connection, wanted)
        if dry_run:
            result = BackfillResult(id=None, inserted=report.gaps, already=report.settled)
            advice = list(_advice(connection, report.gaps, overlap is not None))
        else:
            if not (yes or as_json):
                _confirm(report)
            with progress("making jobs") as made:
                result = fill_gaps(connection, report.gaps, report.settled, request, made)
    if as_json:
        print_json(_document(result, dry_run))
    elif dry_run:
        _print_dry_run(result, advice)
    else:
        _print_result(result)
    if result.key_taken or result.unfinished:
        raise typer.Exit(FINDINGS)


def _advice(connection: Connection, gaps: Sequence[Gap], is_overlap_allowed: bool) -> Iterator[str]:
    """How the jobs would run: which schedules one at a time, and for how long."""
    from scheduler.services.backfill import estimated_time
    from scheduler.storage.status import list_schedules

    names = {gap.schedule for gap in gaps}
    for line in list_schedules(connection) if names and not is_overlap_allowed else ():
        overlap = line.definition["overlap"]
        if line.name in names and overlap != "allow":
            yield f"{line.name}: one at a time (overlap: {overlap}); with --overlap allow they run at once"
    estimate = estimated_time(connection, gaps) if gaps else None
    if estimate is not None:
        yield f"about {format_duration(estimate)} of work, by the usual duration of these jobs"


def _confirm(report: GapReport) -> None:
    """Ask before making jobs, where somebody is there to answer."""
    if not report.gaps or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    counts = Counter(gap.schedule for gap in report.gaps)
    for name, count in counts.most_common(10):
        say(f"  {count} of {name}")
    if not typer.confirm(f"Make {counted(len(report.gaps), 'job')}?", err=True):
        say("nothing was changed")
        raise typer.Exit


def _document(result: BackfillResult, dry_run: bool) -> dict[str, Any]:
    return {
        "inserted": len(result.inserted),
        "already": result.already,
        "logical_dates": [dated(gap) for gap in result.inserted],
        "unfinished": [dated(gap) for gap in result.unfinished],
        "key_taken": [dated(gap) for gap in result.key_taken],
        "dry_run": dry_run,
        "backfill": result.id,
    }


def _print_dry_run(result: BackfillResult, advice: Sequence[str]) -> None:
    print_dates([(gap.schedule, gap.logical_date) for gap in result.inserted], ("schedule", "logical date"))
    for line in advice:
        say(line)
    say(
        f"{counted(len(result.inserted), 'job')} would be made, {counted(result.already, 'date')} settled before; "
        "nothing was changed"
    )


def _print_result(result: BackfillResult) -> None:
    for gap in result.key_taken:
        say(f"{gap.schedule} {instant_text(gap.logical_date)}: its idempotency key belongs to another job")
    for gap in result.unfinished:
        say(f"{gap.schedule} {instant_text(gap.logical_date)}: its job is unfinished, so it is not run again")
    name = "" if result.id is None else f" by backfill {result.id}"
    print_line(f"{counted(len(result.inserted), 'job')} made{name}, {counted(result.already, 'date')} settled before")

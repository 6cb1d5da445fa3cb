"""``sched backfill``: make jobs for the gaps of a range. ``backfills`` looks after what was made."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.core.models import PRIORITIES
from scheduler.core.time.durations import format_duration
from scheduler.core.time.moments import instant_text
from scheduler.errors import ConfigError
from scheduler.interfaces.cli.gap_range import dated, find, gap_request, print_dates
from scheduler.interfaces.cli.options import (
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
    from scheduler.core.ledger.gaps import Gap
    from scheduler.services.backfill import BackfillRequest, BackfillResult
    from scheduler.services.gaps import GapReport
    from scheduler.storage.database import Connection

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)

FINDINGS = 1
MOST_ACTIVE = 10_000
MOST_UNASKED = 10_000
DATES_SAID = 20
ROWS_PER_DATE = 4
"""Its job, an attempt, the result, and either a new ledger row or an event about the old one."""


Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        show_default=False,
        help="First moment: a date, a local time or an instant; included. Needed.",
    ),
]
Order = Annotated[str, typer.Option("--order", metavar="asc|desc", help="Oldest or newest dates first.")]
MaxActive = Annotated[
    int | None,
    typer.Option(
        "--max-active",
        parser=number,
        metavar="N",
        show_default="no bound",
        help="How many jobs run at once of schedules that allow overlap, or with --overlap allow; the others run "
        "one job each.",
    ),
]
Overlap = Annotated[
    str | None,
    typer.Option(
        "--overlap",
        metavar="allow",
        show_default="one at a time, unless the schedule allows overlap",
        help="Let the jobs of a schedule run at once.",
    ),
]
Rerun = Annotated[
    bool, typer.Option("--rerun", help="Also dates whose job has ended: a new generation, both results stay.")
]
Payload = Annotated[
    str | None,
    typer.Option("--payload", metavar="JSON", show_default=False, help="Merged over the payload of the definition."),
]
Priority = Annotated[
    int | None,
    typer.Option(
        "--priority",
        parser=number,
        metavar="N",
        show_default="1000: after live jobs",
        help="Of the jobs; smaller goes first.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be made.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal; needed elsewhere for over 10,000 dates.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outlook:
    """What a dry run says beyond the dates. ``one_at_a_time`` has overlap policies by schedule.

    ``work`` is how long the jobs would run one after the other; None if that is not known.
    """

    kinds: Mapping[str, int]
    one_at_a_time: Mapping[str, str]
    work: timedelta | None
    rows: int


@app.callback()
def backfill(
    context: typer.Context,
    since: Since = None,
    until: Until = None,
    schedule: Schedules = None,
    include: Include = None,
    order: Order = "asc",
    max_active: MaxActive = None,
    overlap: Overlap = None,
    rerun: Rerun = False,
    payload: Payload = None,
    priority: Priority = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
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
    from scheduler.services.backfill import DEFAULT_PRIORITY, BackfillRequest

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
            _foresee(connection, report, request, as_json=as_json)
        else:
            _fill(connection, report, request, yes=yes, as_json=as_json)


def _foresee(connection: Connection, report: GapReport, request: BackfillRequest, *, as_json: bool) -> None:
    from scheduler.services.backfill import BackfillResult

    result = BackfillResult(id=None, inserted=report.gaps, already=report.settled)
    outlook = _outlook(connection, report.gaps, request.is_overlap_allowed)
    if as_json:
        print_json(_document(result, outlook))
    else:
        _print_dry_run(result, outlook)


def _fill(connection: Connection, report: GapReport, request: BackfillRequest, *, yes: bool, as_json: bool) -> None:
    """Make the jobs, once somebody has agreed to it. Ends the command with code 1 if some dates were left."""
    from scheduler.services.backfill import fill_gaps

    if not yes:
        _confirm(report, as_json)
    with progress("making jobs") as made:
        result = fill_gaps(connection, report.gaps, report.settled, request, made)
    if as_json:
        print_json(_document(result, None))
    else:
        _print_result(result)
    if result.key_taken or result.unfinished:
        raise typer.Exit(FINDINGS)


def _outlook(connection: Connection, gaps: Sequence[Gap], is_overlap_allowed: bool) -> _Outlook:
    from scheduler.services.backfill import estimated_time
    from scheduler.storage.status import list_schedules

    names = {gap.schedule for gap in gaps}
    lines = list_schedules(connection) if names and not is_overlap_allowed else ()
    overlaps = {line.name: line.definition["overlap"] for line in lines if line.name in names}
    return _Outlook(
        kinds=Counter(gap.kind.value for gap in gaps),
        one_at_a_time={name: overlap for name, overlap in overlaps.items() if overlap != "allow"},
        work=estimated_time(connection, gaps) if gaps else None,
        rows=ROWS_PER_DATE * len(gaps),
    )


def _confirm(report: GapReport, as_json: bool) -> None:
    """Ask before making jobs where somebody is there to answer; elsewhere refuse very many."""
    counts = Counter(gap.schedule for gap in report.gaps)
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        if len(report.gaps) > MOST_UNASKED:
            raise ConfigError(
                f"this would make {len(report.gaps):,} jobs of {counted(len(counts), 'schedule')}; "
                "add --yes to make them, --dry-run to see what they are, or narrow it with --until and --schedule"
            )
        return
    if not report.gaps:
        return
    for name, count in counts.most_common(10):
        say(f"  {count} of {name}")
    if not typer.confirm(f"Make {counted(len(report.gaps), 'job')}?", err=True):
        say("nothing was changed")
        raise typer.Exit


def _document(result: BackfillResult, outlook: _Outlook | None) -> dict[str, Any]:
    document = {
        "inserted": len(result.inserted),
        "already": result.already,
        "logical_dates": [dated(gap) for gap in result.inserted],
        "unfinished": [dated(gap) for gap in result.unfinished],
        "key_taken": [dated(gap) for gap in result.key_taken],
        "dry_run": outlook is not None,
        "backfill": result.id,
    }
    if outlook is not None:
        document |= {
            "kinds": dict(outlook.kinds),
            "one_at_a_time": sorted(outlook.one_at_a_time),
            "estimate": {"seconds": outlook.work, "rows": outlook.rows},
        }
    return document


def _print_dry_run(result: BackfillResult, outlook: _Outlook) -> None:
    print_dates(
        [(gap.schedule, gap.logical_date, gap.kind) for gap in result.inserted], ("schedule", "logical date", "kind")
    )
    for name, overlap in sorted(outlook.one_at_a_time.items()):
        say(f"{name}: one at a time (overlap: {overlap}); with --overlap allow they run at once")
    if outlook.work is not None:
        say(f"about {format_duration(outlook.work)} of work, by the usual duration of these jobs")
    elif result.inserted:
        say("how long it takes is unknown: a schedule has no job that succeeded yet")
    if result.inserted:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outlook.kinds.items()))
        say(f"{kinds}; about {outlook.rows:,} row{'' if outlook.rows == 1 else 's'}")
    say(
        f"{counted(len(result.inserted), 'job')} would be made, {counted(result.already, 'date')} settled before; "
        "nothing was changed"
    )


def _print_result(result: BackfillResult) -> None:
    _say_each(result.key_taken, "its idempotency key belongs to another job")
    _say_each(result.unfinished, "its job is unfinished, so it is not run again")
    name = "" if result.id is None else f" by backfill {result.id}"
    print_line(f"{counted(len(result.inserted), 'job')} made{name}, {counted(result.already, 'date')} settled before")


def _say_each(gaps: Sequence[Gap], why: str) -> None:
    for gap in gaps[:DATES_SAID]:
        say(f"{gap.schedule} {instant_text(gap.logical_date)}: {why}")
    if len(gaps) > DATES_SAID:
        say(f"and {len(gaps) - DATES_SAID} more: {why}")

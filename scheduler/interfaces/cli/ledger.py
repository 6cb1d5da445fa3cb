"""Commands about the ledger: what is missing, filling it, and the state of everything."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.interfaces.cli.options import (
    PRIORITIES,
    Dsn,
    Include,
    Json,
    Reason,
    Schedules,
    Since,
    Until,
    choice,
    moment,
    number,
    whole,
)
from scheduler.interfaces.cli.output import ago, print_facts, print_json, print_line, print_table, progress, say
from scheduler.interfaces.cli.session import connected, settings_of

if TYPE_CHECKING:
    from scheduler.core.gaps import Gap
    from scheduler.services.backfill import BackfillResult
    from scheduler.services.gaps import GapReport, GapRequest
    from scheduler.storage.database import Connection
    from scheduler.storage.status import StatusSummary

app = typer.Typer(rich_markup_mode=None)

ROWS_SHOWN = 100
FINDINGS = 1


@app.command()
def gaps(
    context: typer.Context,
    since: Since,
    until: Until = None,
    schedule: Schedules = None,
    include: Include = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Find dates that did not become jobs. Exit code 1 if there are any.

    A bare date is local midnight in each schedule's zone; the range is [since, until).

    \b
      sched gaps --since 2026-01-01
      sched gaps --since 2026-03-01 --until 2026-04-01 --schedule daily-ingest --json
    """
    request = _gap_request(since, until, schedule, include)
    with connected(context, dsn) as connection:
        report = _find(connection, request)
    if as_json:
        print_json(
            {
                "expected": report.expected,
                "settled": report.settled,
                "gaps": [_dated(gap) | {"kind": gap.kind} for gap in report.gaps],
            }
        )
    else:
        _print_gaps(report)
    if report.gaps:
        raise typer.Exit(FINDINGS)


@app.command()
def backfill(
    context: typer.Context,
    since: Since,
    until: Until = None,
    schedule: Schedules = None,
    include: Include = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            metavar="allow",
            show_default="one at a time, unless the schedule allows overlap",
            help="Let the jobs of a schedule run at once.",
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
    """Make a job for every gap of a range. Dates that are settled already are left alone, however often it is run.

    \b
      sched backfill --since 2026-01-01 --dry-run
      sched backfill --since 2026-03-01 --until 2026-04-01 --schedule daily-ingest --reason "late data"
    """
    from scheduler.services.backfill import DEFAULT_PRIORITY, BackfillRequest, BackfillResult, fill_gaps

    if overlap is not None:
        choice(overlap, "--overlap", ["allow"])
    wanted = _gap_request(since, until, schedule, include)
    request = BackfillRequest(
        actor=settings_of(context, dsn).actor,
        since=since,
        until=until,
        schedules=schedule or None,
        reason=reason,
        priority=DEFAULT_PRIORITY if priority is None else whole(priority, "--priority", *PRIORITIES),
        is_overlap_allowed=overlap is not None,
    )
    with connected(context, dsn) as connection:
        report = _find(connection, wanted)
        if dry_run:
            result = BackfillResult(id=None, inserted=report.gaps, already=report.settled, key_taken=())
        else:
            if not (yes or as_json):
                _confirm(report)
            with progress("making jobs") as made:
                result = fill_gaps(connection, report.gaps, report.settled, request, made)
    if as_json:
        print_json(_backfill_document(result, dry_run))
    else:
        _print_backfill(result, dry_run)
    if result.key_taken:
        raise typer.Exit(FINDINGS)


@app.command()
def status(context: typer.Context, dsn: Dsn = None, as_json: Json = False) -> None:
    """Show the state at a glance. Jobs, dates, waits, leases, and what is due next.

    \b
      sched status
      sched status --json
    """
    from scheduler.storage.status import summary

    with connected(context, dsn) as connection:
        found = summary(connection)
    if as_json:
        print_json(_status_document(found))
    else:
        _print_status(found)


def _gap_request(
    since: str, until: str | None, schedules: Sequence[str] | None, include: Sequence[str] | None
) -> GapRequest:
    from scheduler.core.gaps import DEFAULT_KINDS, GapKind
    from scheduler.services.gaps import GapRequest

    more = sorted(kind.value for kind in GapKind if kind not in DEFAULT_KINDS)
    return GapRequest(
        since=moment(since, "--since"),
        until=None if until is None else moment(until, "--until"),
        schedules=schedules or None,
        kinds=DEFAULT_KINDS | {GapKind(choice(kind, "--include", more)) for kind in include or ()},
    )


def _find(connection: Connection, request: GapRequest) -> GapReport:
    from scheduler.services.gaps import find_gaps

    with progress("looking for gaps") as looked:
        report = find_gaps(connection, request, looked)
    for name, ledger_from in report.ledger_from.items():
        say(f"{name}: dates up to {ledger_from:%Y-%m-%d %H:%M} UTC are pruned and not looked at")
    return report


def _print_gaps(report: GapReport) -> None:
    _print_dates(
        [(gap.schedule, gap.logical_date, gap.kind) for gap in report.gaps], ("schedule", "logical date", "kind")
    )
    say(f"{report.expected} expected, {report.settled} settled, {len(report.gaps)} gaps")


def _print_dates(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
    """The first rows for a person; all of them when stdout is not a terminal."""
    shown = rows[:ROWS_SHOWN] if sys.stdout.isatty() else rows
    if shown:
        print_table(columns, shown, empty="")
    if len(shown) < len(rows):
        say(f"and {len(rows) - len(shown)} more; --json shows all")


def _confirm(report: GapReport) -> None:
    """Ask before making jobs, where somebody is there to answer."""
    if not report.gaps or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    counts = Counter(gap.schedule for gap in report.gaps)
    for name, count in counts.most_common(10):
        say(f"  {count} of {name}")
    typer.confirm(f"Make {len(report.gaps)} jobs?", abort=True, err=True)


def _backfill_document(result: BackfillResult, dry_run: bool) -> dict[str, Any]:
    return {
        "inserted": len(result.inserted),
        "already": result.already,
        "logical_dates": [_dated(gap) for gap in result.inserted],
        "key_taken": [_dated(gap) for gap in result.key_taken],
        "dry_run": dry_run,
        "backfill": result.id,
    }


def _print_backfill(result: BackfillResult, dry_run: bool) -> None:
    if dry_run:
        _print_dates([(gap.schedule, gap.logical_date) for gap in result.inserted], ("schedule", "logical date"))
        say(f"{len(result.inserted)} jobs would be made, {result.already} dates are settled already; nothing changed")
        return
    for gap in result.key_taken:
        say(f"{gap.schedule} {gap.logical_date:%Y-%m-%dT%H:%MZ}: its idempotency key belongs to another job")
    print_line(f"{len(result.inserted)} jobs made, {result.already} dates were settled already")


def _dated(gap: Gap) -> dict[str, Any]:
    return {"schedule": gap.schedule, "logical_date": gap.logical_date}


def _status_document(found: StatusSummary) -> dict[str, Any]:
    from scheduler.core.models import JobStatus, OccurrenceState

    wait = None if found.ready_since is None else max(0.0, (found.now - found.ready_since).total_seconds())
    return {
        "now": found.now,
        "jobs": {status.value: found.jobs.get(status, 0) for status in JobStatus},
        "occurrences": {state.value: found.occurrences.get(state, 0) for state in OccurrenceState},
        "oldest_ready_seconds": wait,
        "expired_leases": found.expired_leases,
        "due": found.due,
        "next_due_at": found.next_due_at,
        "schedules": found.schedules,
        "paused_schedules": found.paused_schedules,
        "workers": found.workers,
        "host": found.host,
        "tzdata": found.tzdata,
        "last_pass_at": found.last_pass_at,
        "last_plan_at": found.last_plan_at,
    }


def _print_status(found: StatusSummary) -> None:
    from scheduler.core.models import JobStatus, OccurrenceState

    jobs = [f"{found.jobs[status]} {status}" for status in JobStatus if found.jobs.get(status)]
    dates = [f"{found.occurrences[state]} {state}" for state in OccurrenceState if found.occurrences.get(state)]
    paused = f", {found.paused_schedules} paused" if found.paused_schedules else ""
    print_facts(
        {
            "schedules": f"{found.schedules} in force{paused}",
            "dates": ", ".join(dates) or "none yet",
            "undecided": f"{found.due} due dates" if found.due else None,
            "next due": _when(found, found.next_due_at) or "nothing planned",
            "jobs": ", ".join(jobs) or "none yet",
            "oldest wait": None if found.ready_since is None else ago(found.ready_since, found.now),
            "expired leases": found.expired_leases or None,
            "workers": found.workers,
            "last tick": _when(found, found.last_pass_at) or "never",
        }
    )


def _when(found: StatusSummary, at: Any) -> str | None:
    from scheduler.core.moments import instant_text

    return None if at is None else f"{instant_text(at)} ({ago(at, found.now)})"

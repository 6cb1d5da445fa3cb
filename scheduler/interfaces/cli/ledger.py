"""Commands that look at the ledger: what is missing, and the state of everything."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Set
from typing import TYPE_CHECKING, Any

import typer

from scheduler.interfaces.cli.gap_calendar import drawn, drawn_request, only, shown_counts
from scheduler.interfaces.cli.gap_range import dated, find, gap_request, print_dates
from scheduler.interfaces.cli.options import (
    Dsn,
    Include,
    Json,
    Schedules,
    Since,
    Until,
)
from scheduler.interfaces.cli.output import ago, counted, print_facts, print_json, print_line, print_table, say
from scheduler.interfaces.cli.session import connected

if TYPE_CHECKING:
    from scheduler.core.ledger.gaps import GapKind
    from scheduler.services.gaps import GapReport
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

    A bare date is local midnight in each schedule's zone; the range is [since, until). On a terminal it also draws
    every day of every schedule.

    \b
      sched gaps --since 2026-01-01
      sched gaps --since 2026-03-01 --until 2026-04-01 --schedule daily-ingest --json
    """
    request = gap_request(since, until, schedule, include)
    is_drawn = sys.stdout.isatty() and not as_json
    with connected(context, dsn) as connection:
        everything = find(connection, drawn_request(request) if is_drawn else request)
    report = only(everything, request.kinds) if is_drawn else everything
    if as_json:
        print_json(
            {
                "expected": report.expected,
                "settled": report.settled,
                "gaps": [dated(gap) | {"kind": gap.kind} for gap in report.gaps],
            }
        )
    else:
        _print_gaps(report, everything if is_drawn else None, request.kinds)
    if report.gaps:
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


def _print_gaps(report: GapReport, everything: GapReport | None, kinds: Set[GapKind]) -> None:
    """The dates; on a terminal followed by a picture of all days, elsewhere by counts on stderr."""
    print_dates(
        [(gap.schedule, gap.logical_date, gap.kind) for gap in report.gaps], ("schedule", "logical date", "kind")
    )
    by_kind: dict[str, Counter[str]] = {each.schedule: Counter() for each in report.schedules}
    for gap in report.gaps:
        by_kind[gap.schedule][gap.kind] += 1
    rows = [
        (each.schedule, each.expected, each.settled, shown_counts(by_kind[each.schedule])) for each in report.schedules
    ]
    if everything is not None:
        for line in drawn(everything.gaps, kinds, shutil.get_terminal_size().columns):
            print_line(line)
        print_table(("schedule", "expected", "settled", "gaps"), rows, empty="")
    elif len(rows) > 1:
        for name, expected, settled, counts in rows:
            if counts is not None:
                say(f"{name}: {expected} expected, {settled} settled, {counts}")
    say(f"{report.expected} expected, {report.settled} settled, {counted(len(report.gaps), 'gap')}")


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
        "overdue": found.overdue,
        "ended_horizons": found.ended_horizons,
        "horizon_end": found.horizon_end,
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
            "undecided": counted(found.due, "due date") if found.due else None,
            "overdue": counted(found.overdue, "date") + " not done by finish_by" if found.overdue else None,
            "not planned": counted(found.ended_horizons, "schedule") + " without dates ahead"
            if found.ended_horizons
            else None,
            "next due": _when(found, found.next_due_at) or "nothing planned",
            "jobs": ", ".join(jobs) or "none yet",
            "oldest wait": None if found.ready_since is None else ago(found.ready_since, found.now),
            "expired leases": found.expired_leases or None,
            "workers": found.workers,
            "fired by": "pg_cron" if found.host == "pg_cron" else None,
            "planned until": _when(found, found.horizon_end) if found.host == "pg_cron" else None,
            "last tick": _when(found, found.last_pass_at) or "never",
        }
    )


def _when(found: StatusSummary, at: Any) -> str | None:
    from scheduler.core.time.moments import instant_text

    return None if at is None else f"{instant_text(at)} ({ago(at, found.now)})"

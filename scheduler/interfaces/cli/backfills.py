"""``sched backfill list``, ``show``, ``pause``, ``resume`` and ``cancel``: what was asked for, and what came of it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.interfaces.cli.options import LARGEST_ID, Dsn, Json, Reason, number, whole
from scheduler.interfaces.cli.output import counted, print_facts, print_json, print_line, print_table, progress, say
from scheduler.interfaces.cli.session import by, connected

if TYPE_CHECKING:
    from scheduler.storage.backfills import BackfillRow
    from scheduler.storage.database import Connection

app = typer.Typer(rich_markup_mode=None)

FINDINGS = 1
LIST_LIMIT = 10_000
WATCH_SECONDS = 1.0
UNMOVED_LOOKS = 30

BackfillId = Annotated[int, typer.Argument(metavar="ID", parser=number, help="The number of a backfill.")]


@app.command("list")
def list_all(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", parser=number, metavar="N", help="At most so many.")] = 20,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """List backfills, the newest first.

    \b
      sched backfill list
    """
    from scheduler.storage.backfills import list_backfills

    whole(limit, "--limit", 1, LIST_LIMIT)
    with connected(context, dsn) as connection:
        found = list_backfills(connection, limit=limit)
    if as_json:
        print_json({"backfills": [asdict(row) for row in found]})
        return
    print_table(
        ("id", "status", "since", "until", "schedules", "jobs", "by", "reason"),
        [(row.id, row.status, row.since, row.until, _names(row), _counts(row), row.actor, row.reason) for row in found],
        empty="no backfills yet",
    )


@app.command("show")
def show(
    context: typer.Context,
    backfill: BackfillId,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until nothing of it is left to run.")] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Show one backfill, and where its jobs stand. With --watch, exit code 1 if some of them died.

    \b
      sched backfill show 3
      sched backfill show 3 --watch
    """
    from scheduler.services.backfill import show_backfill

    whole(backfill, "ID", 1, LARGEST_ID)
    with connected(context, dsn) as connection:
        found = _watch(connection, backfill) if watch else show_backfill(connection, backfill)
    if as_json:
        print_json(asdict(found))
    else:
        facts = asdict(found) | {"schedules": _names(found), "kinds": ", ".join(found.kinds), "jobs": _counts(found)}
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
    if watch and found.jobs.get("dead"):
        raise typer.Exit(FINDINGS)


@app.command("pause")
def pause(
    context: typer.Context, backfill: BackfillId, reason: Reason = None, dsn: Dsn = None, as_json: Json = False
) -> None:
    """Hold the jobs of a backfill that have not started. Running ones go on.

    \b
      sched backfill pause 3 --reason "source is slow"
    """
    _act(context, backfill, "pause", reason, dsn, as_json)


@app.command("resume")
def resume(
    context: typer.Context, backfill: BackfillId, reason: Reason = None, dsn: Dsn = None, as_json: Json = False
) -> None:
    """Release the held jobs of a paused backfill.

    \b
      sched backfill resume 3
    """
    _act(context, backfill, "resume", reason, dsn, as_json)


@app.command("cancel")
def cancel(
    context: typer.Context, backfill: BackfillId, reason: Reason = None, dsn: Dsn = None, as_json: Json = False
) -> None:
    """Cancel the jobs of a backfill that have not started. Running ones go on.

    \b
      sched backfill cancel 3 --reason "wrong range"
    """
    _act(context, backfill, "cancel", reason, dsn, as_json)


def _act(
    context: typer.Context, backfill: int, action: str, reason: str | None, dsn: str | None, as_json: bool
) -> None:
    from scheduler.services.backfill import change_backfill

    whole(backfill, "ID", 1, LARGEST_ID)
    asked = by(context, dsn, reason)
    with connected(context, dsn) as connection:
        result = change_backfill(connection, backfill, action, actor=asked.actor, reason=asked.reason)
    if as_json:
        print_json({"backfill": backfill, "status": result.outcome, "jobs": result.jobs})
    else:
        print_line(f"backfill {backfill}: {result.outcome}, {counted(result.jobs, 'job')} concerned")


def _watch(connection: Connection, backfill: int) -> BackfillRow:
    """Follow a backfill until its jobs are final, or held because it is paused: a bar, or lines where there is none.

    One that was killed while it made jobs stays ``filling``; it is followed until nothing has moved for a while.
    """
    from scheduler.core.models import FINAL_STATUSES
    from scheduler.services.backfill import show_backfill

    said, unmoved = None, 0
    with progress(f"backfill {backfill}") as follow:
        while True:
            found = show_backfill(connection, backfill)
            ended = sum(found.jobs.get(status, 0) for status in FINAL_STATUSES)
            total = sum(found.jobs.values())
            follow(ended, total)
            line = f"{ended} of {total} ended: {_counts(found)}"
            unmoved = unmoved + 1 if line == said else 0
            if line != said and not sys.stderr.isatty():
                say(line)
            said = line
            is_over = found.status != "filling" or unmoved >= UNMOVED_LOOKS
            if is_over and ended + found.jobs.get("held", 0) == total:
                return found
            time.sleep(WATCH_SECONDS)


def _names(row: BackfillRow) -> str:
    return "all" if row.schedules is None else ", ".join(row.schedules)


def _counts(row: BackfillRow) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(row.jobs.items())) or "none"

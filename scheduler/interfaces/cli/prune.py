"""``sched prune``: delete what is old enough, in small batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.interfaces.cli.options import Dsn, Json, duration
from scheduler.interfaces.cli.output import print_facts, print_json, print_line, progress
from scheduler.interfaces.cli.session import connected

if TYPE_CHECKING:
    from scheduler.services.retention import PruneResult, Retention
    from scheduler.storage.database import Connection

app = typer.Typer(rich_markup_mode=None)

KINDS = ("succeeded jobs", "cancelled jobs", "dead jobs", "dates", "results", "events")
SHORTEST = timedelta(hours=1)
"""Doctor relies on it: ``JOBS_KEPT`` in ``storage.doctor``."""


def _kept(flag: str, what: str, default: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        flag, metavar="DURATION", show_default=default, help=f"How long {what} stay."
    )
    return option


@app.command()
def prune(
    context: typer.Context,
    keep_jobs: Annotated[str | None, _kept("--keep-jobs", "succeeded and cancelled jobs", "30d")] = None,
    keep_dead: Annotated[str | None, _kept("--keep-dead", "dead jobs", "180d")] = None,
    keep_ledger: Annotated[
        str | None, _kept("--keep-ledger", "settled dates", "400d, 35d for over 100 dates a day")
    ] = None,
    keep_results: Annotated[str | None, _kept("--keep-results", "results of pruned jobs", "400d")] = None,
    keep_events: Annotated[str | None, _kept("--keep-events", "events", "400d")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Delete what is old enough. In small batches, beside everything else that runs; run it every night.

    Jobs go with their attempts, counted from their end. Of the ledger the oldest settled dates go, up to the first one
    that is not settled: they are no gaps and cannot be filled any more, and daily counts of them stay.

    \b
      sched prune
      sched prune --keep-jobs 7d --keep-ledger 100d --dry-run
    """
    from scheduler.services.retention import preview, prune_once

    retention = _retention(
        {
            "succeeded": (keep_jobs, "--keep-jobs"),
            "cancelled": (keep_jobs, "--keep-jobs"),
            "dead": (keep_dead, "--keep-dead"),
            "ledger": (keep_ledger, "--keep-ledger"),
            "results": (keep_results, "--keep-results"),
            "events": (keep_events, "--keep-events"),
        }
    )
    with connected(context, dsn) as connection:
        if dry_run:
            result = preview(connection, retention)
        else:
            with progress("pruning") as bar:
                result = prune_once(connection, retention, _counting(connection, retention, bar))
    _print(result, dry_run, as_json)


def _retention(asked: Mapping[str, tuple[str | None, str]]) -> Retention:
    from scheduler.services.retention import Retention

    given = {kind: (text, flag) for kind, (text, flag) in asked.items() if text is not None}
    return Retention(**{kind: duration(text, flag, least=SHORTEST) for kind, (text, flag) in given.items()})


def _counting(
    connection: Connection, retention: Retention, bar: Callable[[int, int], None]
) -> Callable[[str, int], None]:
    """Progress by kind as progress of the whole. Where nobody sees the bar, nothing is counted ahead."""
    from scheduler.services.retention import preview

    total = sum(preview(connection, retention).rows.values()) if sys.stderr.isatty() else 0
    gone: dict[str, int] = {}

    def went(kind: str, rows: int) -> None:
        gone[kind] = rows
        bar(sum(gone.values()), max(total, sum(gone.values())))

    return went


def _print(result: PruneResult, dry_run: bool, as_json: bool) -> None:
    counts = {kind: result.rows.get(kind, 0) for kind in KINDS}
    if as_json:
        print_json({"rows": {kind.replace(" ", "_"): count for kind, count in counts.items()}, "dry_run": dry_run})
    elif any(counts.values()):
        print_line("would go:" if dry_run else "gone:")
        print_facts({kind: count for kind, count in counts.items() if count})
    else:
        print_line("nothing is old enough")

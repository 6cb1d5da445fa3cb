"""What gaps and backfill share: reading the range, looking for gaps, showing dates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scheduler.interfaces.cli.options import choice, moment
from scheduler.interfaces.cli.output import print_table, progress, say

if TYPE_CHECKING:
    from scheduler.core.ledger.gaps import Gap
    from scheduler.services.gaps import GapReport, GapRequest
    from scheduler.storage.database import Connection

ROWS_SHOWN = 100


def gap_request(
    since: str,
    until: str | None,
    schedules: Sequence[str] | None,
    include: Sequence[str] | None,
    *,
    is_rerun: bool = False,
) -> GapRequest:
    """What to look for, from the texts of flags; with ``is_rerun`` also dates whose job has ended."""
    from scheduler.core.ledger.gaps import DEFAULT_KINDS, INCLUDABLE, GapKind
    from scheduler.services.gaps import GapRequest

    included = {GapKind(choice(kind, "--include", [kind.value for kind in INCLUDABLE])) for kind in include or ()}
    return GapRequest(
        since=moment(since, "--since"),
        until=None if until is None else moment(until, "--until"),
        schedules=schedules or None,
        kinds=DEFAULT_KINDS | included | ({GapKind.DONE} if is_rerun else set()),
    )


def find(connection: Connection, request: GapRequest) -> GapReport:
    """Look for gaps, with a bar on a terminal; says which schedules are pruned inside the range."""
    from scheduler.services.gaps import find_gaps
    from scheduler.services.ranges import refuse_ambiguous

    for bound in (request.since, request.until):
        if bound is not None:
            refuse_ambiguous(connection, bound, request.schedules)
    with progress("looking for gaps") as looked:
        report = find_gaps(connection, request, looked)
    for name, ledger_from in report.ledger_from.items():
        say(f"{name}: dates up to {ledger_from:%Y-%m-%d %H:%M} UTC are pruned and not looked at")
    return report


def print_dates(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
    """The first rows for a person; all of them when stdout is not a terminal."""
    shown = rows[:ROWS_SHOWN] if sys.stdout.isatty() else rows
    if shown:
        print_table(columns, shown, empty="")
    if len(shown) < len(rows):
        say(f"and {len(rows) - len(shown)} more; --json shows all")


def dated(gap: Gap) -> dict[str, Any]:
    """A gap as JSON."""
    return {"schedule": gap.schedule, "logical_date": gap.logical_date}

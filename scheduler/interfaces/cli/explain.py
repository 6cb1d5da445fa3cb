"""``sched explain``: why a date did or did not run, told in order."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.core.time.moments import instant_text
from scheduler.interfaces.cli.options import Dsn, Json, moment
from scheduler.interfaces.cli.output import print_json, print_line, printable
from scheduler.interfaces.cli.session import connected

if TYPE_CHECKING:
    from scheduler.services.explain import Explanation

app = typer.Typer(rich_markup_mode=None)


@app.command()
def explain(
    context: typer.Context,
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="The name of a schedule.")],
    date: Annotated[str, typer.Argument(metavar="DATE", help="A local date, a local time or an instant.")],
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Tell why a date did or did not run. From its definition to its last attempt, also if it was never expected.

    Times are local to the schedule; --json has them in UTC.

    \b
      sched explain daily-ingest 2026-03-14
      sched explain hourly-report 2026-03-29T02:30
    """
    from scheduler.services.explain import explain as tell

    with connected(context, dsn) as connection:
        found = tell(connection, schedule, moment(date, "DATE"))
    if as_json:
        print_json(
            {
                "schedule": found.schedule,
                "logical_date": found.logical_date,
                "steps": [asdict(step) for step in found.steps],
            }
        )
    else:
        _print_story(found)


def _print_story(found: Explanation) -> None:
    """One line a step, with the local time at which it happened; a step without one belongs to the line above."""
    print_line(found.schedule if found.logical_date is None else f"{found.schedule} {instant_text(found.logical_date)}")
    print_line()
    times = [_local(step.at, found.timezone) for step in found.steps]
    width = max(map(len, times))
    for at, step in zip(times, found.steps, strict=True):
        print_line(f"{at.ljust(width)}  {printable(step.text.replace(chr(10), ' '))}".rstrip())


def _local(at: datetime | None, timezone: str) -> str:
    from scheduler.core.time.localtime import local_clock

    return "" if at is None else f"{at.astimezone(local_clock(timezone).zone):%Y-%m-%d %H:%M:%S %Z}"

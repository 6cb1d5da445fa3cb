"""``sched simulate``: what definitions would do over a range of time, outages included. Needs no database of yours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.errors import ConfigError
from scheduler.interfaces.cli.definitions import load
from scheduler.interfaces.cli.options import DEFAULT_FOLDER, Folder, Json, duration, moment, whole
from scheduler.interfaces.cli.output import counted, print_facts, print_json, print_line, print_table, progress

if TYPE_CHECKING:
    from scheduler.services.simulate import SimulatedRun, SimulationResult
    from scheduler.storage.database import Connection

app = typer.Typer(rich_markup_mode=None)

SHOWN = 200
LONGEST = timedelta(days=400)
_TICK = timedelta(microseconds=1)
"""Definitions hold for dates after they are applied; so long before the first moment, its own dates are among them."""


@app.command()
def simulate(
    folder: Folder = DEFAULT_FOLDER,
    since: Annotated[str, typer.Option("--from", metavar="WHEN", help="First moment, in UTC; included.")] = "",
    until: Annotated[str, typer.Option("--to", metavar="WHEN", help="Where it ends, in UTC; not included.")] = "",
    outage: Annotated[
        list[str] | None,
        typer.Option("--outage", metavar="A..B", show_default=False, help="Nothing fires in [A, B); may be repeated."),
    ] = None,
    takes: Annotated[str, typer.Option("--duration", metavar="D", help="How long every job takes.")] = "1m",
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", help="How many jobs run at once.")] = 100,
    as_json: Json = False,
) -> None:
    """Run definitions on a virtual clock. The real planner and the real firing decide, in a throw-away database.

    \b
      sched simulate --from 2026-03-28 --to 2026-03-31
      sched simulate --from 2026-01-01 --to 2026-01-08 --outage 2026-01-03T04:00..2026-01-03T16:00 --duration 20m
    """
    from scheduler.services.apply import apply_definitions
    from scheduler.services.planner import Planner
    from scheduler.services.simulate import SimulationRequest
    from scheduler.services.simulate import simulate as run

    request = SimulationRequest(
        since=_instant(since, "--from"),
        until=_instant(until, "--to"),
        outages=[_outage(text) for text in outage or ()],
        duration=duration(takes, "--duration", least=timedelta(0)),
        concurrency=whole(concurrency, "--concurrency", 1, 10_000),
    )
    _check_range(request.since, request.until)
    definitions = load(folder)
    with _throw_away_database() as connection, progress("simulating") as advance:
        apply_definitions(connection, definitions, actor="simulation", now=request.since - _TICK)
        span = int((request.until - request.since).total_seconds())
        result = run(
            connection,
            request,
            Planner("simulation").run_once,
            lambda now: advance(int((now - request.since).total_seconds()), span),
        )
    if as_json:
        print_json(_document(result))
    else:
        _print(result)


@contextmanager
def _throw_away_database() -> Iterator[Connection]:
    from scheduler.storage.database import Database
    from scheduler.storage.embedded import EmbeddedServer
    from scheduler.storage.migrations import migrate

    with (
        tempfile.TemporaryDirectory(prefix="sched-simulate-") as folder,
        EmbeddedServer.open(Path(folder)) as server,
        Database(server.dsn).connection() as connection,
    ):
        migrate(connection)
        yield connection


def _instant(text: str, flag: str) -> datetime:
    if not text:
        raise ConfigError(f"{flag} is missing: write a date such as 2026-01-31, or a moment such as 2026-01-31T08:30Z")
    found = moment(text, flag)
    if not isinstance(found, datetime):
        return datetime.combine(found, time(), UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _outage(text: str) -> tuple[datetime, datetime]:
    start, dots, end = text.partition("..")
    if not dots:
        raise ConfigError(f'--outage: "{text[:60]}" is not a range: write 2026-01-03T04:00..2026-01-03T16:00')
    outage = _instant(start, "--outage"), _instant(end, "--outage")
    if outage[0] >= outage[1]:
        raise ConfigError(f'--outage: "{text[:60]}" ends before it begins')
    return outage


def _check_range(since: datetime, until: datetime) -> None:
    if since >= until:
        raise ConfigError("--to must be later than --from")
    if until - since > LONGEST:
        raise ConfigError(f"at most {LONGEST.days} days can be simulated at once")


def _document(result: SimulationResult) -> dict[str, object]:
    return {
        "dates": [_date(run) for run in result.runs],
        "outcomes": dict(result.outcomes),
        "busiest": [{"minute": at, "jobs": jobs} for at, jobs in result.busiest],
        "most_at_once": result.most_at_once,
    }


def _date(run: SimulatedRun) -> dict[str, object]:
    return {
        "schedule": run.date.schedule,
        "logical_date": run.date.logical_date,
        "due_at": run.date.due_at,
        "state": run.date.state,
        "reason": run.date.reason,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }


def _print(result: SimulationResult) -> None:
    shown: Sequence[SimulatedRun] = result.runs[:SHOWN]
    print_table(
        ("schedule", "logical date", "outcome", "started", "waited"),
        [
            (
                run.date.schedule,
                run.date.logical_date,
                f"{run.date.state} ({run.date.reason})" if run.date.reason else run.date.state,
                run.started_at,
                run.wait,
            )
            for run in shown
        ],
        empty="no date is due in this range",
    )
    if len(result.runs) > SHOWN:
        print_line(f"… and {len(result.runs) - SHOWN} more; --json prints all")
    print_facts(
        {
            "dates": ", ".join(f"{number} {outcome}" for outcome, number in result.outcomes.items()) or "none",
            "busiest": ", ".join(f"{at:%Y-%m-%d %H:%M} ({counted(jobs, 'job')})" for at, jobs in result.busiest)
            or "none",
            "most at once": counted(result.most_at_once, "job"),
        }
    )

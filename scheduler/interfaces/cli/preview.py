"""``sched preview``: when schedules fire next, with what is unusual about a date. Needs no database."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.errors import ConfigError, NotFound
from scheduler.interfaces.cli.definitions import load
from scheduler.interfaces.cli.options import DEFAULT_FOLDER, Json, moment, number, whole
from scheduler.interfaces.cli.output import counted, print_json, print_line, print_table

if TYPE_CHECKING:
    from scheduler.core.models import DefinitionSet, Occurrence, Timing

app = typer.Typer(rich_markup_mode=None)

COUNT_LIMIT = 100_000
_TICK = timedelta(microseconds=1)


@app.command()
def preview(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", show_default="all", help="Schedules of the folder.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Folder with definition files.")
    ] = DEFAULT_FOLDER,
    cron: Annotated[
        str | None,
        typer.Option("--cron", metavar="EXPRESSION", show_default=False, help="An expression instead of schedules."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", show_default="UTC", help="The zone of --cron.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", show_default="now", help="First moment; included.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", parser=number, metavar="N", help="How many firings of each.")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show when schedules fire next. In local time and UTC; needs no database.

    \b
      sched preview
      sched preview daily-ingest --count 3
      sched preview --cron "30 2 * * *" --timezone Europe/Berlin --from 2026-03-28
    """
    whole(count, "--count", 1, COUNT_LIMIT)
    if cron is not None:
        timings: Mapping[str, Timing] = {"": _cron_timing(cron, timezone, names)}
    elif timezone is not None:
        raise ConfigError("--timezone belongs to --cron; schedules bring their own")
    else:
        timings = _timings(load(folder), names)
    firings = {name: _firings(timing, since, count) for name, timing in timings.items()}
    if as_json:
        print_json(
            {
                "firings": [
                    _firing(timings[name], occurrence) | ({"schedule": name} if name else {})
                    for name, occurrences in firings.items()
                    for occurrence in occurrences
                ]
            }
        )
        return
    for name, occurrences in firings.items():
        _print_firings(name, timings[name], occurrences)


def _cron_timing(cron: str, timezone: str | None, names: Sequence[str] | None) -> Timing:
    from scheduler.core.models import Cron, Timing
    from scheduler.core.time.occurrences import compile_timing

    if names:
        raise ConfigError("give names of schedules or --cron, not both")
    timing = Timing(name="", rule=Cron(expression=cron), timezone="UTC" if timezone is None else timezone)
    compile_timing(timing)
    return timing


def _timings(definitions: DefinitionSet, names: Sequence[str] | None) -> Mapping[str, Timing]:
    known = {name: definition.timing for name, definition in definitions.schedules.items()}
    for name in names or ():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"the folder has {counted(len(known), 'schedule')}"
            raise NotFound(f'the files have no schedule "{name}"; {hint}')
    return {name: known[name] for name in names or known}


def _firings(timing: Timing, since: str | None, count: int) -> Sequence[Occurrence]:
    from scheduler.core.time.localtime import instant_of, local_clock
    from scheduler.core.time.occurrences import next_occurrences

    begin = datetime.now(UTC) if since is None else moment(since, "--from")
    if not isinstance(begin, datetime):
        begin = datetime.combine(begin, time())
    if begin.tzinfo is None:
        begin = instant_of(local_clock(timing.timezone), begin)
    return next_occurrences(timing, begin - _TICK, count)


def _firing(timing: Timing, occurrence: Occurrence) -> dict[str, Any]:
    return {
        "logical_date": occurrence.logical_date,
        "due_at": occurrence.due_at,
        "local": _local(timing, occurrence).isoformat(),
    }


def _local(timing: Timing, occurrence: Occurrence) -> datetime:
    """When it fires, on the wall clock of its zone."""
    from scheduler.core.time.localtime import zone

    return occurrence.due_at.astimezone(zone(timing.timezone))


def _print_firings(name: str, timing: Timing, occurrences: Sequence[Occurrence]) -> None:
    from scheduler.core.time.describe import describe_rule, notes

    print_line(f"{name}: {describe_rule(timing)}" if name else describe_rule(timing))
    rows = []
    for occurrence in occurrences:
        local = _local(timing, occurrence)
        moved = None if occurrence.due_at == occurrence.logical_date else occurrence.logical_date
        note = "; ".join(notes(timing, occurrence)) or None
        rows.append((f"{local:%a %Y-%m-%d %H:%M:%S}", f"{local:%z} {local:%Z}", occurrence.due_at, moved, note))
    columns = ("local time", "offset", "utc", "logical date", "note")
    used = [index for index in range(5) if index < 3 or any(row[index] for row in rows)]
    print_table(
        [columns[index] for index in used],
        [["" if row[index] is None else row[index] for index in used] for row in rows],
        empty=f"{name or 'the expression'}: never fires again",
    )
    if name:
        print_line()

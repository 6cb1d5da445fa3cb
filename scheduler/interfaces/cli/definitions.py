"""Commands about definition files: lint, schema and preview need no database; plan and apply compare with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.errors import ConfigError, DefinitionError, NotFound
from scheduler.interfaces.cli.options import DEFAULT_FOLDER, Dsn, Folder, Json, moment, number, whole
from scheduler.interfaces.cli.output import (
    print_json,
    print_line,
    print_table,
    say,
)
from scheduler.interfaces.cli.session import connected, settings_of

if TYPE_CHECKING:
    from scheduler.core.diff import Change
    from scheduler.core.models import DefinitionSet, Occurrence, Timing
    from scheduler.errors import Problem

app = typer.Typer(rich_markup_mode=None)

COUNT_LIMIT = 100_000
_TICK = timedelta(microseconds=1)


@app.command()
def lint(folder: Folder = DEFAULT_FOLDER, as_json: Json = False) -> None:
    """Check definition files. Needs no database; shows every problem of every file, with its line and column.

    Warnings do not change the exit code; problems end with 2.

    \b
      sched lint
      sched lint deploy/schedules --json
    """
    from scheduler.core.lint import lint_set
    from scheduler.services.definitions import read_definitions

    now = datetime.now(UTC)
    try:
        loaded = read_definitions(folder, today=now.date())
    except DefinitionError as error:
        if as_json:
            print_json({"schedules": 0, "problems": [_problem(problem) for problem in error.problems], "warnings": []})
            raise typer.Exit(error.exit_code) from error
        raise
    schedules = len(loaded.definitions.schedules)
    warnings = [
        loaded.problem(found.schedule, found.field, found.message) for found in lint_set(loaded.definitions, now)
    ]
    if as_json:
        print_json({"schedules": schedules, "problems": [], "warnings": [_problem(warning) for warning in warnings]})
        return
    for warning in warnings:
        say(f"warning: {warning}")
    print_line(f"{_counted(schedules, 'schedule')} in {folder}: no problems, {_counted(len(warnings), 'warning')}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of definition files, for editors.

    \b
      sched schema > schedule.schema.json
    """
    from scheduler.core.definition_files.model import json_schema

    print_json(json_schema())


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


@app.command()
def plan(
    context: typer.Context,
    folder: Folder = DEFAULT_FOLDER,
    allow_retire: Annotated[
        bool, typer.Option("--allow-retire", help="Accept that most or all schedules would be retired.")
    ] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Show what apply would change. Changes nothing.

    \b
      sched plan
      sched plan deploy/schedules --json
    """
    from scheduler.services.apply import plan_changes

    definitions = load(folder)
    with connected(context, dsn) as connection:
        planned = plan_changes(connection, definitions, allow_retire=allow_retire)
    _print_changes(planned.changes, definitions, as_json, done=False)


@app.command()
def apply(
    context: typer.Context,
    folder: Folder = DEFAULT_FOLDER,
    allow_retire: Annotated[
        bool, typer.Option("--allow-retire", help="Retire schedules even if that is most or all of them.")
    ] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Put the definition files in force. All schedules of their owners at once.

    Schedules that are no longer in the files are retired: they stop firing and keep their history. Nothing in the
    past fires. Applying the same files again changes nothing.

    \b
      sched apply
      sched apply deploy/schedules --dsn postgresql://db.internal/jobs
    """
    from scheduler.services.apply import apply_definitions

    definitions = load(folder)
    actor = settings_of(context, dsn).actor
    with connected(context, dsn) as connection:
        applied = apply_definitions(connection, definitions, actor=actor, allow_retire=allow_retire)
    _print_changes(applied.changes, definitions, as_json, done=True)


def load(folder: Path) -> DefinitionSet:
    """The definitions of a folder. Raises DefinitionError with every problem."""
    from scheduler.services.definitions import load_definitions

    return load_definitions(folder, today=datetime.now(UTC).date())


def describe_changes(changes: Sequence[Change]) -> list[str]:
    """Changes as lines for a person: one for each schedule, one more for each field that differs."""
    lines: list[str] = []
    for change in changes:
        was = f" (was {change.old_name})" if change.kind == "renamed" else ""
        lines.append(f"{change.kind:<8} {change.name}{was}")
        lines += [f"           {field.field}: {_value(field.old)} -> {_value(field.new)}" for field in change.fields]
    return lines


def _print_changes(changes: Sequence[Change], definitions: DefinitionSet, as_json: bool, *, done: bool) -> None:
    if as_json:
        print_json({"schedules": len(definitions.schedules), "changes": [_change(change) for change in changes]})
        return
    for line in describe_changes(changes):
        print_line(line)
    verb = "made" if done else "to make"
    print_line(
        f"{_counted(len(changes), 'change')} {verb}, {_counted(len(definitions.schedules), 'schedule')} in files"
    )


def _change(change: Change) -> dict[str, Any]:
    fields = [{"field": field.field, "old": field.old, "new": field.new} for field in change.fields]
    return {"kind": str(change.kind), "name": change.name, "old_name": change.old_name, "fields": fields}


def _value(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
    }


def _cron_timing(cron: str, timezone: str | None, names: Sequence[str] | None) -> Timing:
    from scheduler.core.models import Cron, Timing
    from scheduler.core.occurrences import compile_timing

    if names:
        raise ConfigError("give names of schedules or --cron, not both")
    timing = Timing(name="", rule=Cron(expression=cron), timezone="UTC" if timezone is None else timezone)
    compile_timing(timing)
    return timing


def _timings(definitions: DefinitionSet, names: Sequence[str] | None) -> Mapping[str, Timing]:
    known = {name: definition.timing for name, definition in definitions.schedules.items()}
    for name in names or ():
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"the folder has {_counted(len(known), 'schedule')}"
            raise NotFound(f'the files have no schedule "{name}"; {hint}')
    return {name: known[name] for name in names or known}


def _firings(timing: Timing, since: str | None, count: int) -> Sequence[Occurrence]:
    from scheduler.core.localtime import instant_of, local_clock
    from scheduler.core.occurrences import next_occurrences

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
    from scheduler.core.localtime import zone

    return occurrence.due_at.astimezone(zone(timing.timezone))


def _print_firings(name: str, timing: Timing, occurrences: Sequence[Occurrence]) -> None:
    from scheduler.core.describe import describe_rule, notes

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


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""Commands about definition files: lint and schema need no database; plan and apply compare with one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.errors import DefinitionError
from scheduler.interfaces.cli.changes import (
    change_document,
    describe_changes,
    describe_effect,
    effect_document,
    effect_of,
)
from scheduler.interfaces.cli.options import DEFAULT_FOLDER, Dsn, Folder, Json
from scheduler.interfaces.cli.output import counted, print_json, print_line, say
from scheduler.interfaces.cli.session import connected, settings_of

if TYPE_CHECKING:
    from scheduler.core.definitions.diff import Change
    from scheduler.core.models import DefinitionSet
    from scheduler.errors import Problem

app = typer.Typer(rich_markup_mode=None)


@app.command()
def lint(folder: Folder = DEFAULT_FOLDER, as_json: Json = False) -> None:
    """Check definition files. Needs no database; shows every problem of every file, with its line and column.

    Warnings do not change the exit code; problems end with 2.

    \b
      sched lint
      sched lint deploy/schedules --json
    """
    from scheduler.services.definitions import lint_folder

    try:
        report = lint_folder(folder, now=datetime.now(UTC))
    except DefinitionError as error:
        if as_json:
            print_json({"schedules": 0, "problems": [_problem(problem) for problem in error.problems], "warnings": []})
            raise typer.Exit(error.exit_code) from error
        raise
    schedules, warnings = report.schedules, report.warnings
    if as_json:
        print_json({"schedules": schedules, "problems": [], "warnings": [_problem(warning) for warning in warnings]})
        return
    for warning in warnings:
        say(f"warning: {warning}")
    print_line(f"{counted(schedules, 'schedule')} in {folder}: no problems, {counted(len(warnings), 'warning')}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of definition files, for editors.

    \b
      sched schema > schedule.schema.json
    """
    from scheduler.core.definitions.files.model import json_schema

    print_json(json_schema())


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

    For each schedule: the fields, the dates of the next 14 days that appear, vanish or move, and its unfinished jobs.

    \b
      sched plan
      sched plan deploy/schedules --json
    """
    from scheduler.services.apply import plan_changes
    from scheduler.storage.database import database_now
    from scheduler.storage.status import unfinished_jobs

    definitions = load(folder)
    with connected(context, dsn) as connection:
        changes = plan_changes(connection, definitions, allow_retire=allow_retire).changes
        unfinished = unfinished_jobs(connection, [change.old_name for change in changes])
        now = database_now(connection)
    effects = [effect_of(change, now, unfinished.get(change.old_name, 0)) for change in changes]
    if as_json:
        documents = [
            change_document(change) | effect_document(effect) for change, effect in zip(changes, effects, strict=True)
        ]
        print_json({"schedules": len(definitions.schedules), "changes": documents})
        return
    for change, effect in zip(changes, effects, strict=True):
        for line in (*describe_changes([change]), *describe_effect(effect)):
            print_line(line)
    _print_count(changes, definitions, "to make")


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
    from scheduler.interfaces.cli.pgcron import plan_to_horizon
    from scheduler.services.apply import apply_definitions

    definitions = load(folder)
    actor = settings_of(context, dsn).actor
    with connected(context, dsn) as connection:
        applied = apply_definitions(connection, definitions, actor=actor, allow_retire=allow_retire)
        plan_to_horizon(connection)
    if as_json:
        documents = [change_document(change) for change in applied.changes]
        print_json({"schedules": len(definitions.schedules), "changes": documents, "applied_at": applied.applied_at})
        return
    for line in describe_changes(applied.changes):
        print_line(line)
    _print_count(applied.changes, definitions, "made")


def load(folder: Path) -> DefinitionSet:
    """The definitions of a folder. Raises DefinitionError with every problem."""
    from scheduler.services.definitions import load_definitions

    return load_definitions(folder, today=datetime.now(UTC).date())


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
    }


def _print_count(changes: Sequence[Change], definitions: DefinitionSet, verb: str) -> None:
    print_line(f"{counted(len(changes), 'change')} {verb}, {counted(len(definitions.schedules), 'schedule')} in files")

"""Commands that run things: migrate, tick, worker, and up, which is all of them in one process.

SIGTERM or Ctrl-C stops a loop in good order: no new work, running jobs get time to finish. A second one ends at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.errors import ConfigError, DefinitionError
from scheduler.interfaces.cli.options import (
    DEFAULT_FOLDER,
    Dsn,
    Folder,
    Json,
    duration,
    existing,
    module,
    number,
    whole,
)
from scheduler.interfaces.cli.output import ago, counted, print_json, print_line, print_text, say
from scheduler.interfaces.cli.session import connected, opened, settings_of

if TYPE_CHECKING:
    from scheduler.services.tick import TickResult
    from scheduler.services.worker import WorkerResult, WorkerSettings
    from scheduler.storage.database import Database

app = typer.Typer(rich_markup_mode=None)

MOST_CONCURRENCY = 1000
SHORTEST_LEASE = timedelta(seconds=1)
LOOP_LOG_LEVEL = "info"

Apps = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="MODULE", show_default=False, help="Module that registers handlers; repeatable."),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", "-c", parser=number, metavar="N", help="How many jobs run at once.")
]
Lease = Annotated[str, typer.Option("--lease", metavar="DURATION", help="How long a silent worker keeps its jobs.")]


@app.command()
def up(
    context: typer.Context,
    folder: Folder = DEFAULT_FOLDER,
    apps: Apps = None,
    concurrency: Concurrency = 10,
    lease: Lease = "15s",
    dsn: Dsn = None,
) -> None:
    """Run everything in one process. Migrates, applies the folder and follows its changes, ticks and works.

    Without --dsn and SCHED_DSN it uses the embedded PostgreSQL in .sched/, which it starts and stops.

    \b
      sched up
      sched up deploy/schedules --app team.jobs
    """
    from scheduler.handlers import load_app
    from scheduler.interfaces.cli.definitions import load
    from scheduler.interfaces.cli.loops import Follower, follow, new_ticker, run_together
    from scheduler.services.loop import stop_on_signals
    from scheduler.services.reaper import run_reaper
    from scheduler.services.worker import Worker
    from scheduler.storage.migrations import migrate as migrate_schema

    queues = {definition.queue for definition in load(folder).schedules.values()} | {"default"}
    settings = _worker_settings(queues, concurrency, lease)
    registry = load_app(*map(module, apps or ()))
    follower = Follower(folder, settings_of(context, dsn).actor)
    with (
        opened(context, dsn, needs_schema=False, log_level=LOOP_LOG_LEVEL) as database,
        stop_on_signals() as (stop, abort),
    ):
        with database.connection() as connection:
            migrate_schema(connection)
            follower.apply(connection)
        worker = Worker(database, registry, settings)
        say("up: Ctrl-C stops in good order, twice at once")
        run_together(
            stop,
            abort,
            lambda stop: new_ticker().run(database, stop),
            lambda stop: run_reaper(database, stop),
            lambda stop: follow(database, follower, stop),
            lambda stop: worker.run(stop, abort=abort),
        )


@app.command()
def migrate(
    context: typer.Context,
    sql: Annotated[bool, typer.Option("--sql", help="Print the whole schema as SQL; needs no database.")] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Create or upgrade the schema. In one transaction; safe to repeat, and to run twice at once.

    \b
      sched migrate --dsn postgresql://db.internal/jobs
      sched migrate --sql | less
    """
    from scheduler.storage.migrations import migrate as migrate_schema
    from scheduler.storage.migrations import migration_script

    if sql:
        if as_json:
            raise ConfigError("--sql prints SQL and --json a document; give one of them")
        print_text(migration_script())
        return
    with connected(context, dsn, needs_schema=False) as connection:
        applied = migrate_schema(connection)
    if as_json:
        print_json({"applied": applied})
    else:
        print_line(f"applied {', '.join(applied)}" if applied else "the schema is up to date")


@app.command()
def tick(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Decide what is due now, plan ahead, and end.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--apply", metavar="DIR", show_default=False, help="Apply this folder first, and follow it."),
    ] = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Turn due dates into jobs and plan ahead. Sleeps until the next one; run as many as you like.

    Files that cannot be applied are reported, and what was applied before goes on firing; with --once the exit code
    is then 2.

    \b
      sched tick
      sched tick --once --apply schedules
    """
    if as_json and not once:
        raise ConfigError("--json needs --once: a loop has no end to report")
    if folder is not None:
        existing(folder, "--apply")
    actor = settings_of(context, dsn).actor
    with opened(context, dsn, log_level="warning" if once else LOOP_LOG_LEVEL) as database:
        if once:
            _tick_once(database, folder, actor, as_json)
        else:
            _tick_on(database, folder, actor)


@app.command()
def worker(
    context: typer.Context,
    apps: Apps = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", show_default="default", help="Queue to work on; repeatable."),
    ] = None,
    concurrency: Concurrency = 10,
    lease: Lease = "15s",
    drain: Annotated[bool, typer.Option("--drain", help="End when nothing is due or running.")] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Execute jobs. Stopped once, it finishes what runs; what does not end in time is handed back.

    \b
      sched worker --app team.jobs --queue default --queue slow --concurrency 4
      sched worker --app team.jobs --drain
    """
    from scheduler.handlers import load_app
    from scheduler.interfaces.cli.loops import planning_beside
    from scheduler.services.loop import stop_on_signals
    from scheduler.services.worker import Worker

    settings = _worker_settings(set(queue or ["default"]), concurrency, lease)
    registry = load_app(*map(module, apps or ()))
    with (
        opened(context, dsn, log_level=LOOP_LOG_LEVEL) as database,
        stop_on_signals() as (stop, abort),
        planning_beside(database),
    ):
        result = Worker(database, registry, settings).run(stop, abort=abort, drain=drain)
    if as_json:
        print_json(asdict(result))
    else:
        _print_worked(result)


def _worker_settings(queues: Iterable[str], concurrency: int, lease: str) -> WorkerSettings:
    from scheduler.services.worker import WorkerSettings

    return WorkerSettings(
        queues=tuple(sorted(queues)),
        concurrency=whole(concurrency, "--concurrency", 1, MOST_CONCURRENCY),
        lease=duration(lease, "--lease", least=SHORTEST_LEASE),
    )


def _tick_once(database: Database, folder: Path | None, actor: str, as_json: bool) -> None:
    from scheduler.interfaces.cli.loops import Follower, new_ticker, process_name
    from scheduler.storage.database import database_now
    from scheduler.storage.jobs import reap_jobs

    refused: DefinitionError | ConfigError | None = None
    with database.connection() as connection:
        if folder is not None:
            try:
                Follower(folder, actor).apply(connection)
            except (DefinitionError, ConfigError) as error:
                refused = error
        result = new_ticker().run_once(connection)
        reap_jobs(connection, process_name("reaper"))
        now = database_now(connection)
    if as_json:
        print_json(
            {
                "enqueued": result.enqueued,
                "skipped": result.skipped,
                "missed": result.missed,
                "planned": result.planned,
                "busy": result.is_busy,
                "next_due_at": result.next_due_at,
            }
        )
    else:
        next_due = "nothing planned" if result.next_due_at is None else f"next due {ago(result.next_due_at, now)}"
        print_line(f"{_tick_counts(result)}; {next_due}")
    if result.is_busy:
        say("another ticker was deciding at this moment; what is due is decided by it")
    if refused is not None:
        raise refused


def _tick_on(database: Database, folder: Path | None, actor: str) -> None:
    from scheduler.interfaces.cli.loops import Follower, Loop, follow, new_ticker, run_together
    from scheduler.services.loop import stop_on_signals
    from scheduler.services.reaper import run_reaper

    loops: list[Loop] = [lambda stop: new_ticker().run(database, stop), lambda stop: run_reaper(database, stop)]
    if folder is not None:
        follower = Follower(folder, actor)
        with database.connection() as connection:
            follower.apply_if_changed(connection)
        loops.append(lambda stop: follow(database, follower, stop))
    with stop_on_signals() as (stop, abort):
        say("tick: Ctrl-C stops in good order, twice at once")
        run_together(stop, abort, *loops)


def _tick_counts(result: TickResult) -> str:
    return (
        f"{result.enqueued} enqueued, {result.skipped} skipped, {result.missed} missed, "
        f"{counted(result.planned, 'date')} planned"
    )


def _print_worked(result: WorkerResult) -> None:
    others = {name: count for name, count in asdict(result).items() if count and name not in ("claimed", "succeeded")}
    more = "".join(f", {count} {name.replace('_', ' ')}" for name, count in others.items())
    print_line(f"{result.claimed} claimed, {result.succeeded} succeeded{more}")

"""``sched jobs retry, replay, hold, release, cancel``: one shape for all, by number or by filter.

What an action means is in ``core.jobs.actions``; the five commands are made from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.core.jobs.actions import ACTIONS, JobSelection
from scheduler.core.models import FINAL_STATUSES, JobStatus
from scheduler.errors import ConfigError
from scheduler.interfaces.cli.options import (
    LARGEST_ID,
    Dsn,
    Json,
    Reason,
    choice,
    instant,
    number,
    required,
    whole,
)
from scheduler.interfaces.cli.output import counted, print_json, print_line, print_table, progress
from scheduler.interfaces.cli.session import by, connected

if TYPE_CHECKING:
    from scheduler.storage.database import Connection
    from scheduler.storage.operating import ActionOutcome, By

app = typer.Typer(rich_markup_mode=None)

FINDINGS = 1
MOST_UNASKED = 1000
"""How many jobs a filter may change without ``--yes``."""

OF_ENDED_JOBS = ("dead", "since", "until")
"""Parameters that only the actions on ended jobs have."""

HELP = {
    "retry": """
        Make dead, cancelled or held jobs run again. By number or by filter; with at least one attempt more.

        A filter means dead jobs, unless --status says otherwise. Exit code 1 if a job given by number is in another
        state.

        \b
          sched jobs retry 17 18 --reason "the source is back"
          sched jobs retry --dead --queue mail --since 2026-03-01T08:00:00Z --error timeout --dry-run
        """,
    "replay": """
        Do the work of finished jobs again, as new jobs. The finished ones and their results stay as they are.

        A new job has the type, payload, queue, priority and limit of the old one, and its idempotency key with
        #replay-<number of the new job> behind it, so that both results are kept. To run dates of a schedule again,
        so that the new results count, use "sched backfill --rerun": a replay has no logical date.

        \b
          sched jobs replay 17 --reason "the template was wrong"
          sched jobs replay --status succeeded --job-type report.build --since 2026-03-01T00:00:00Z --dry-run
        """,
    "hold": """
        Keep jobs that have not started from starting. Until they are released; by number or by filter.

        Exit code 1 if a job given by number has started.

        \b
          sched jobs hold 17 --reason "the source is being repaired"
          sched jobs hold --queue mail
        """,
    "release": """
        Let held jobs go on, whoever held them. By number or by filter; exit code 1 if one given by number is not held.

        \b
          sched jobs release 17
          sched jobs release --schedule daily-ingest
        """,
    "cancel": """
        Cancel jobs that have not ended. A running one is asked to stop and loses its lease after 30 seconds.

        By number or by filter; exit code 1 if a job given by number has ended.

        \b
          sched jobs cancel 17 --reason "sent by mistake"
          sched jobs cancel --job-type mail.send --status pending --dry-run
        """,
}

_UNSTARTED = ("scheduled", "waiting", "pending")
_REFUSALS: Mapping[str, Mapping[str, str]] = {
    "retry": {
        **dict.fromkeys(_UNSTARTED, "it will run without a retry"),
        "running": "it can be retried once it is dead or cancelled",
        "succeeded": '"sched jobs replay {id}" does its work again, as a new job',
    },
    "replay": {
        **dict.fromkeys((*_UNSTARTED, "running"), "it can be replayed once it has ended"),
        "held": 'it has not ended; "sched jobs release {id}" lets it go on',
    },
    "hold": {
        "running": 'only what has not started can be held; "sched jobs cancel {id}" stops it',
        **dict.fromkeys(("succeeded", "dead", "cancelled"), "it has ended and will not start"),
    },
    "release": {
        **dict.fromkeys((*_UNSTARTED, "running"), "it is not held and goes on by itself"),
        "succeeded": "it is not held: it has ended",
        **dict.fromkeys(("dead", "cancelled"), 'it is not held; "sched jobs retry {id}" makes it run again'),
    },
    "cancel": dict.fromkeys(("succeeded", "dead"), "it has ended: there is nothing to cancel"),
}
"""What is said, after its state, of a job to which an action does nothing."""

JobIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", parser=number, show_default=False, help="The numbers of jobs; or give a filter."),
]
Dead = Annotated[bool, typer.Option("--dead", help="Short for --status dead.")]
Statuses = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="STATUS", show_default=False, help="Jobs in this state; may be repeated."),
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", show_default="all")]
JobType = Annotated[
    str | None, typer.Option("--job-type", metavar="JOB", show_default="all", help="Jobs of this type: mail.send.")
]
Schedule = Annotated[
    str | None, typer.Option("--schedule", metavar="NAME", show_default="all", help="Jobs of this schedule.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="INSTANT", show_default=False, help="Jobs that ended then or later."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="INSTANT", show_default=False, help="Jobs that ended before then.")
]
Error = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", show_default=False, help="Jobs with this text in their last error."),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", parser=number, metavar="N", show_default="all", help="Only so many, the oldest."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what the filter means.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help=f"Needed for more than {MOST_UNASKED:,} jobs.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The filter flags as they were given."""

    dead: bool
    status: Sequence[str]
    queue: str | None
    job_type: str | None
    schedule: str | None
    since: str | None
    until: str | None
    error: str | None

    @property
    def is_given(self) -> bool:
        """Whether any of them was."""
        return any((self.dead, self.status, *self._texts.values(), self.since is not None, self.until is not None))

    def selection(self, action: str, limit: int | None) -> JobSelection:
        """The jobs that are meant. Raises ConfigError with what to write instead."""
        known = [status.value for status in ACTIONS[action].works_on]
        asked = [*self.status, *(["dead"] if self.dead else [])]
        statuses = tuple(JobStatus(choice(status, "--status", known)) for status in dict.fromkeys(asked))
        selection = JobSelection(
            statuses=statuses or ACTIONS[action].usual,
            since=None if self.since is None else instant(self.since, "--since"),
            until=None if self.until is None else instant(self.until, "--until"),
            limit=None if limit is None else whole(limit, "--limit", 1, LARGEST_ID),
            **{name: required(text, f"--{name.replace('_', '-')}") for name, text in self._texts.items()},
        )
        if fault := selection.fault():
            raise ConfigError(fault)
        return selection

    @property
    def _texts(self) -> dict[str, Any]:
        texts = {"queue": self.queue, "job_type": self.job_type, "schedule": self.schedule, "error": self.error}
        return {name: text for name, text in texts.items() if text is not None}


def _add_command(action: str) -> None:
    def command(
        context: typer.Context,
        ids: JobIds = None,
        dead: Dead = False,
        status: Statuses = None,
        queue: Queue = None,
        job_type: JobType = None,
        schedule: Schedule = None,
        since: Since = None,
        until: Until = None,
        error: Error = None,
        limit: Limit = None,
        dry_run: DryRun = False,
        yes: Yes = False,
        reason: Reason = None,
        dsn: Dsn = None,
        as_json: Json = False,
    ) -> None:
        wanted = Filter(
            dead=dead,
            status=status or [],
            queue=queue,
            job_type=job_type,
            schedule=schedule,
            since=since,
            until=until,
            error=error,
        )
        _require_ids_or_filter(action, ids or [], wanted, is_bounded=limit is not None or dry_run)
        selection = None if ids else wanted.selection(action, limit)
        actor = by(context, dsn, reason)
        with connected(context, dsn) as connection:
            if selection is None:
                _act_on_ids(connection, action, ids or [], actor, as_json=as_json)
            else:
                _act_on_selection(connection, action, selection, actor, dry_run=dry_run, yes=yes, as_json=as_json)

    signature = inspect.signature(command, eval_str=True)
    if FINAL_STATUSES.isdisjoint(ACTIONS[action].works_on):
        kept = [each for name, each in signature.parameters.items() if name not in OF_ENDED_JOBS]
        command.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    app.command(action, help=inspect.cleandoc(HELP[action]))(command)


for _action in ACTIONS:
    _add_command(_action)


def _require_ids_or_filter(action: str, ids: Sequence[int], wanted: Filter, *, is_bounded: bool) -> None:
    for job_id in ids:
        whole(job_id, "ID", 1, LARGEST_ID)
    if ids and (wanted.is_given or is_bounded):
        raise ConfigError("give the numbers of jobs, or a filter such as --queue; not both")
    if not ids and not wanted.is_given:
        raise ConfigError(
            f"say which jobs to {action}: by number, or by a filter, such as --status "
            f"{ACTIONS[action].usual[0]} or --queue NAME"
        )


def _act_on_ids(connection: Connection, action: str, ids: Sequence[int], actor: By, *, as_json: bool) -> None:
    from scheduler.services.operate import act_on_jobs

    results = act_on_jobs(connection, action, ids, actor)
    if as_json:
        print_json({"jobs": [_document(each) for each in results]})
    else:
        for each in results:
            print_line(f"job {each.id}: {_told(action, each)}")
    if any(each.outcome not in ACTIONS[action].done for each in results):
        raise typer.Exit(FINDINGS)


def _document(result: ActionOutcome) -> dict[str, Any]:
    document = {"id": result.id, "outcome": result.outcome}
    return document if result.replay_id is None else document | {"replay": result.replay_id}


def _told(action: str, result: ActionOutcome) -> str:
    """What became of one job, for a person: what is so and, where something is left to do, what."""
    if result.outcome == "not_found":
        return "gone; it was deleted meanwhile"
    if result.outcome not in ACTIONS[action].done:
        return f"{result.outcome}; {_REFUSALS[action][result.outcome].format(id=result.id)}"
    if result.outcome == "asked":
        return "asked to stop; if it has not ended in 30 seconds, it is cancelled"
    return result.outcome if result.replay_id is None else f"{result.outcome} as job {result.replay_id}"


def _act_on_selection(
    connection: Connection,
    action: str,
    selection: JobSelection,
    actor: By,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from scheduler.services.operate import act_on_matching, count_matching

    found = count_matching(connection, selection)
    matched = found.total()
    outcomes: Mapping[str, int] = {}
    if not dry_run and matched:
        if matched > MOST_UNASKED and not yes:
            raise ConfigError(
                f"this would {action} {matched:,} jobs; add --yes to do it, --dry-run to see what they are, "
                "or narrow it with --limit and other filters"
            )
        with progress(action) as made:
            outcomes = act_on_matching(
                connection, action, replace(selection, limit=matched), actor, lambda done: made(done, matched)
            )
    if as_json:
        kinds = [{"status": status, "job_type": kind, "jobs": jobs} for (status, kind), jobs in sorted(found.items())]
        print_json({"matched": matched, "found": kinds, "dry_run": dry_run, "outcomes": dict(outcomes)})
    elif dry_run:
        _print_found(found)
    else:
        _print_outcomes(action, outcomes)


def _print_found(found: Mapping[tuple[str, str], int]) -> None:
    rows = [(status, kind, jobs) for (status, kind), jobs in sorted(found.items())]
    print_table(("status", "job", "jobs"), rows, empty="no jobs match")


def _print_outcomes(action: str, outcomes: Mapping[str, int]) -> None:
    if not outcomes:
        print_line("no jobs match")
    for outcome, jobs in sorted(outcomes.items()):
        if outcome in ACTIONS[action].done:
            print_line(f"{counted(jobs, 'job')} {'asked to stop' if outcome == 'asked' else outcome}")
        else:
            print_line(f"{counted(jobs, 'job')} left alone: meanwhile {'gone' if outcome == 'not_found' else outcome}")

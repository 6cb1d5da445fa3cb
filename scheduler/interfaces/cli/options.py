"""Flags and arguments that several commands share, and how their texts are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from scheduler.core.time.durations import parse_duration
from scheduler.core.time.moments import parse_moment
from scheduler.errors import ConfigError, shown_value

T = TypeVar("T")

DEFAULT_FOLDER = Path("schedules")
LARGEST_ID = 2**63 - 1

Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        show_default=False,
        help="Database as a URL or libpq connection string; else SCHED_DSN, else the embedded one in .sched/.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with definition files.")]
Since = Annotated[
    str,
    typer.Option("--since", metavar="WHEN", help="First moment: a date, a local time or an instant; included."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", show_default="now", help="Where the range ends; not included."),
]
Schedules = Annotated[
    list[str] | None,
    typer.Option("--schedule", metavar="NAME", show_default="all", help="Only this schedule; may be repeated."),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include", metavar="KIND", show_default=False, help="Count these dates as gaps too: skipped, dead or waived."
    ),
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", show_default=False, help="Why; recorded with your name.")
]


def number(text: str | int) -> int:
    """A whole number given on the command line; what typer calls to read one."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f'"{str(text)[:40]}" is not a whole number') from error


def module(name: str) -> str:
    """The name of a Python module given on the command line. Raises ConfigError with what to write instead."""
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        raise ConfigError(f'--app: "{name[:100]}" is not the name of a module: write it like team.jobs, not as a path')
    return name


def moment(text: str, flag: str) -> date | datetime:
    """A date, local time or instant given on the command line. Raises ConfigError naming the flag."""
    return _read(parse_moment, text, flag)


def instant(text: str, flag: str) -> datetime:
    """An instant given on the command line. Raises ConfigError naming the flag, also for a time without a zone."""
    found = moment(text, flag)
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise ConfigError(f'{flag}: "{text}" does not say in which zone: write an instant like 2026-01-31T08:30:00Z')
    return found


def required(text: str, flag: str) -> str:
    """A name or short text given on the command line. Raises ConfigError if it is empty, too long or not storable."""
    from scheduler.core.jobs.new_job import name_fault

    if fault := name_fault(text):
        raise ConfigError(f"{flag}: {fault}")
    return text


def duration(text: str, flag: str, *, least: timedelta) -> timedelta:
    """A duration given on the command line, ``least`` or longer. Raises ConfigError naming the flag."""
    found = _read(parse_duration, text, flag)
    if found < least:
        raise ConfigError(f"{flag}: {text} is too short; it must be at least {least.total_seconds():g}s")
    return found


def existing(folder: Path, flag: str) -> Path:
    """A folder given on the command line. Raises ConfigError if there is none."""
    if not folder.is_dir():
        raise ConfigError(f"{flag}: {folder} is no folder")
    return folder


def whole(value: int, flag: str, low: int, high: int) -> int:
    """A number given on the command line. Raises ConfigError naming the flag and its range."""
    if not low <= value <= high:
        raise ConfigError(f"{flag}: {shown_value(value)} is out of range; write a whole number from {low} to {high}")
    return value


def choice(text: str, flag: str, options: Sequence[str]) -> str:
    """One of a few words. Raises ConfigError listing them."""
    if text not in options:
        raise ConfigError(f'{flag}: "{text[:40]}" is not known; write one of {", ".join(options)}')
    return text


def json_object(text: str, flag: str) -> dict[str, Any]:
    """A JSON object given on the command line, in a form the database can store. Raises ConfigError."""
    from scheduler.core.storable import place, storable, storage_faults

    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{flag} is not JSON: {error}") from error
    except ValueError as error:  # Python reads no longer ones
        raise ConfigError(f"{flag} holds a number of more than 4,300 digits; send a text") from error
    except RecursionError as error:
        raise ConfigError(f"{flag} is nested too deeply") from error
    if not isinstance(found, dict):
        raise ConfigError(f'{flag} must be a JSON object, like {{"source": "orders"}}')
    for path, fault in storage_faults(found):
        raise ConfigError(f"{place(flag, path)}: {fault}")
    return storable(found)  # type: ignore[no-any-return]


def _read(parse: Callable[[str], T], text: str, flag: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error

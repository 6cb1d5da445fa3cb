"""What commands print: data on stdout, as tables for people or one JSON document for programs; the rest on stderr.

Tables have lines and colours only on a terminal; piped, they are plain columns. ``rich`` is imported only where it
is used, so that ``--help`` and ``--json`` do not pay for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any, TextIO
from uuid import UUID

from scheduler.core.time.durations import format_duration
from scheduler.core.time.moments import instant_text
from scheduler.errors import DefinitionError

PROBLEMS_SHOWN = 20

Progress = Callable[[int, int], None]
"""Told how many of how many are done."""


class OutputClosed(Exception):
    """Whoever read our stdout has gone, as ``head`` does."""


def print_line(text: str = "") -> None:
    """One line of data."""
    _write(sys.stdout, text + "\n")


def print_text(text: str) -> None:
    """Text that brings its own line ends, as it is."""
    _write(sys.stdout, text)


def print_json(document: Mapping[str, Any]) -> None:
    """The one document of a command with ``--json``: instants are RFC 3339 in UTC, durations seconds."""
    _write(sys.stdout, json.dumps(document, default=_plain, indent=2) + "\n")


def say(text: str) -> None:
    """A message for a person, on stderr."""
    _write(sys.stderr, printable(text) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """``rows`` under the names of their ``columns``; without rows, ``empty`` on stderr."""
    if not rows:
        say(empty)
        return
    texts = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(columns, texts)
        return
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    for line in ([name.upper() for name in columns], *texts):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print_line("  ".join(cells).rstrip())


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one pair a line; values that are None are left out."""
    shown = {name: _cell(value) for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        print_line(f"{name.ljust(width)}  {text}".rstrip())


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """A bar on stderr for long work; nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def sentences(error: Exception) -> list[str]:
    """An error as lines for a person; of many problems in definitions the first ones and how many more there are."""
    if not isinstance(error, DefinitionError):
        return [f"error: {error}"]
    lines = [f"error: {problem}" for problem in error.problems[:PROBLEMS_SHOWN]]
    more = len(error.problems) - PROBLEMS_SHOWN
    return lines if more <= 0 else [*lines, f"error: and {counted(more, 'more problem')}"]


def counted(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ago(moment: datetime, now: datetime) -> str:
    """How long before ``now`` (or after: ``in 5m``) a moment lies, to the second."""
    apart = now - moment
    text = format_duration(timedelta(seconds=round(abs(apart).total_seconds())))
    return f"{text} ago" if apart >= timedelta(0) else f"in {text}"


def printable(text: str) -> str:
    """``text`` without characters that a terminal would act on; names and errors come from anywhere."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def _print_rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return printable(str(value).replace("\n", " "))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a JSON document")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error

"""``docs/reference/cli.md``, written from the commands themselves.

    python -m scheduler.interfaces.cli.reference > docs/reference/cli.md

A test holds the file equal to what this prints.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import typer

from scheduler.interfaces.cli.main import app

HEAD = """\
# Commands

Written by `python -m scheduler.interfaces.cli.reference`; change the commands, not this page.
"""


def reference() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    return "\n".join([HEAD, *_section(root, "sched", None)])


def _section(command: Any, path: str, parent: typer.Context | None) -> Iterator[str]:
    context = typer.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield f"## `{path}`\n"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    yield from _usage(command, context)
    yield from _parameters(command, context)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _section(inner, f"{path} {name}", context)


def _paragraphs(text: str) -> Iterator[str]:
    """The help text; a paragraph that keeps its line ends (``\\b``) is shown as it is."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```\n{inspect.cleandoc(paragraph[2:])}\n```\n"
        else:
            yield " ".join(paragraph.split()) + "\n"


def _usage(command: Any, context: typer.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"`{context.command_path} {pieces}`\n"


def _parameters(command: Any, context: typer.Context) -> Iterator[str]:
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    shown = [record for record in records if record is not None and "--help" not in record[0]]
    if not shown:
        return
    yield "| | |\n|---|---|"
    for names, text in shown:
        yield f"| `{names}` | {text.replace('|', chr(92) + '|')} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(reference())

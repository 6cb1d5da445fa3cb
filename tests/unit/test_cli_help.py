"""Help is quick, complete, and the same as in the docs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from scheduler.interfaces.cli.main import app
from scheduler.interfaces.cli.reference import reference
from tests.support.cli import REPOSITORY, process_environment, sched

HEAVY = ("psycopg", "pydantic_core.core_schema", "rich", "yaml", "dateutil", "scheduler.storage", "scheduler.services")


def commands(command: Any, path: str) -> Iterator[str]:
    """The paths of all commands that do something, ``jobs list`` among them."""
    inner = getattr(command, "commands", {})
    if not inner or getattr(command, "invoke_without_command", False):
        yield path
    for name, each in inner.items():
        yield from commands(each, f"{path} {name}".strip())


COMMANDS = [path for path in commands(typer.main.get_command(app), "") if path]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_example(command: str) -> None:
    ended = sched(*command.split(), "--help")

    assert (ended.code, ended.err) == (0, "")
    assert f"  sched {command}" in ended.out


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from scheduler.interfaces.cli.main import run_command; run_command(['--help']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=process_environment()
    )

    assert done.stderr.strip() == "[]"


def test_the_reference_is_current() -> None:
    written = (REPOSITORY / "docs" / "reference" / "cli.md").read_text()

    assert written == reference(), "run: python -m scheduler.interfaces.cli.reference > docs/reference/cli.md"


def test_no_command_shows_the_help_and_is_bad_input() -> None:
    ended = sched()

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: sched")


def test_the_version_can_be_asked_for() -> None:
    assert sched("--version").out.startswith("sched 0.")

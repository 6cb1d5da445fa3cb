"""Help is quick, complete, and the same as in the docs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scheduler.interfaces.cli.reference import reference
from tests.support.cli import REPOSITORY, process_environment, sched

HEAVY = ("psycopg", "pydantic_core.core_schema", "rich", "yaml", "dateutil", "scheduler.storage", "scheduler.services")
COMMANDS = [
    *("up", "migrate", "tick", "worker", "lint", "schema", "preview", "plan", "apply", "gaps", "backfill", "status"),
    *(f"backfill {command}" for command in ("list", "show", "pause", "resume", "cancel")),
    *("enqueue", "jobs list", "jobs show", "jobs retry"),
    *("schedules list", "schedules pause", "schedules resume", "schedules trigger"),
]


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

"""What is different on a terminal: tables with lines, bars, a question before jobs are made."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import COMMAND, DAILY, process_environment, sched, write_definitions

RANGE = ("--since", "2024-03-01", "--until", "2024-03-11")


@pytest.fixture
def applied(database: str, tmp_path: Path) -> str:
    """A database with the daily schedule applied."""
    sched("apply", str(write_definitions(tmp_path, DAILY)), "--dsn", database)
    return database


def on_terminal(*arguments: str, typed: str = "", **environment: str) -> tuple[int, str]:
    """Run a command on a pseudo terminal; returns its exit code and everything it showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=process_environment({"TERM": "xterm", "COLUMNS": "120", **environment}),
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return process.wait(60), shown.decode()


def test_a_table_has_lines_on_a_terminal_only(applied: str) -> None:
    code, shown = on_terminal("schedules", "list", "--dsn", applied)

    assert code == 0
    assert "─" in shown
    assert "─" not in sched("schedules", "list", "--dsn", applied).out


def test_no_color_is_honoured(applied: str) -> None:
    _, coloured = on_terminal("schedules", "list", "--dsn", applied)
    _, plain = on_terminal("schedules", "list", "--dsn", applied, NO_COLOR="1")

    assert "\x1b[1m" in coloured
    assert not any(f"\x1b[{code}m" in plain for code in (*range(30, 38), *range(90, 98)))


@pytest.mark.parametrize(("typed", "said"), [("y\n", "10 jobs made"), ("n\n", "nothing was changed")])
def test_a_backfill_asks_first(applied: str, typed: str, said: str) -> None:
    code, shown = on_terminal("backfill", *RANGE, "--dsn", applied, typed=typed)

    assert code == 0
    assert "Make 10 jobs? [y/N]" in shown
    assert said in shown


def test_yes_answers_the_question(applied: str) -> None:
    code, shown = on_terminal("backfill", *RANGE, "--yes", "--dsn", applied)

    assert (code, "Make" in shown, "10 jobs made" in shown) == (0, False, True)

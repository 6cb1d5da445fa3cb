"""The demo and the example schedules, as somebody runs them who has only the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.storage.database import Connection
from scheduler.storage.embedded import EmbeddedServer
from tests.support.database import connect

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.acceptance


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the demo works with: the example schedules and their documents."""
    for name in ("schedules", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def run(folder: Path, module: str, *arguments: str) -> str:
    """Run one of our modules there; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@contextmanager
def database(folder: Path) -> Iterator[Connection]:
    """The embedded database that the demo left."""
    with EmbeddedServer.open(folder / ".sched") as server, connect(server.dsn) as connection:
        yield connection


def counts(folder: Path) -> list[tuple[int, int]]:
    """Jobs and results of the daily example."""
    with database(folder) as db:
        return db.execute(
            "select (select count(*) from sched.jobs where schedule = 'document-statistics'),"
            " (select count(*) from sched.job_results where key like 'document-statistics:%')"
        ).fetchall()


@pytest.mark.timeout(300)
def test_the_demo_fills_a_month_once_however_often_it_is_run(folder: Path) -> None:
    printed = run(folder, "scheduler.interfaces.demo")
    first = counts(folder)
    assert first[0] in ((30, 30), (31, 31))  # with today's date, if it has passed already
    for part in ("What ran:", "What was skipped or missed, and why:", "To look further:", "succeeded"):
        assert part in printed
    run(folder, "scheduler.interfaces.demo")
    assert counts(folder) == first


@pytest.mark.timeout(300)
def test_the_backup_example_dumps_its_own_database(folder: Path) -> None:
    cli = "scheduler.interfaces.cli.main"
    run(folder, cli, "apply", "schedules")
    run(folder, cli, "schedules", "trigger", "nightly-backup")
    run(folder, cli, "schedules", "trigger", "documents-present")
    run(folder, cli, "worker", "--app", "scheduler.examples.documents", "--drain")
    with EmbeddedServer.open(folder / ".sched") as server, connect(server.dsn) as db:
        assert db.execute("select schedule, status, last_error from sched.jobs order by id").fetchall() == [
            ("nightly-backup", "succeeded", None),
            ("documents-present", "succeeded", None),
        ]
        pg_restore = server.bin_dir / "pg_restore"
    (dump,) = (folder / ".sched" / "backups").glob("*.dump")
    listed = subprocess.run([pg_restore, "--list", dump], capture_output=True, text=True, check=True)
    assert "TABLE sched occurrences" in listed.stdout

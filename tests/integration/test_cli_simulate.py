"""``sched simulate`` as a person calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

YAML = """
version: 1
schedules:
  hourly:
    cron: "0 * * * *"
    timezone: UTC
    job: x
    catchup: {policy: none}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules" / "a.yaml").write_text(YAML)
    return tmp_path


def sched(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scheduler.interfaces.cli.main", "simulate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=100)


def test_an_outage_is_simulated_without_a_database(folder: Path) -> None:
    done = sched(
        folder, "--from", "2026-01-01", "--to", "2026-01-01T06:00", "--outage", "2026-01-01T01:30..2026-01-01T03:30",
        "--json",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert [(date["logical_date"], date["state"], date["reason"]) for date in document["dates"]] == [
        ("2026-01-01T01:00:00Z", "enqueued", None),
        ("2026-01-01T02:00:00Z", "missed", "late"),
        ("2026-01-01T03:00:00Z", "missed", "late"),
        ("2026-01-01T04:00:00Z", "enqueued", None),
        ("2026-01-01T05:00:00Z", "enqueued", None),
    ]
    assert not (folder / ".sched").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--from is missing"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "--to must be later than --from"),
        (["--from", "2026-01-01", "--to", "2030-01-01"], "at most 400 days"),
        (["--from", "2026-01-01", "--to", "2026-01-02", "--outage", "x"], "is not a range"),
        (["--from", "soon", "--to", "2026-01-02"], "is not a moment"),
    ],
)
def test_bad_flags_end_in_a_sentence(folder: Path, arguments: list[str], sentence: str) -> None:
    done = sched(folder, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr

"""``sched simulate`` as a person calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Ended, sched_process

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


def sched(folder: Path, *arguments: str) -> Ended:
    return sched_process("simulate", *arguments, cwd=folder, timeout=100)


def test_an_outage_is_simulated_without_a_database(folder: Path) -> None:
    done = sched(
        folder, "--from", "2026-01-01", "--to", "2026-01-01T06:00", "--outage", "2026-01-01T01:30..2026-01-01T03:30",
        "--json",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert [(date["logical_date"], date["state"], date["reason"]) for date in done.document["dates"]] == [
        ("2026-01-01T00:00:00Z", "enqueued", None),
        ("2026-01-01T01:00:00Z", "enqueued", None),
        ("2026-01-01T02:00:00Z", "missed", "late"),
        ("2026-01-01T03:00:00Z", "missed", "late"),
        ("2026-01-01T04:00:00Z", "enqueued", None),
        ("2026-01-01T05:00:00Z", "enqueued", None),
    ]
    assert not (folder / ".sched").exists()


def test_runs_skips_misses_overlap_and_the_busiest_minutes_are_printed(folder: Path) -> None:
    """Berlin skips 02:30; a job of twelve minutes keeps the next date out; what fell into the outage is missed."""
    (folder / "schedules" / "a.yaml").write_text(
        "version: 1\ndefaults: {timezone: Europe/Berlin}\nschedules:\n"
        '  nightly: {cron: "30 2 * * *", job: x}\n'
        '  often: {cron: "*/10 * * * *", job: x, overlap: skip, catchup: {policy: none}}\n'
    )
    done = sched(
        folder, "--from", "2026-03-29T00:30", "--to", "2026-03-29T02:00", "--duration", "12m",
        "--outage", "2026-03-29T01:15..2026-03-29T01:45",
    )  # fmt: skip
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [
        "SCHEDULE LOGICAL DATE OUTCOME STARTED WAITED",
        "often 2026-03-29T00:30:00Z enqueued 2026-03-29T00:30:00Z 0s",
        "often 2026-03-29T00:40:00Z skipped (overlap) - -",
        "often 2026-03-29T00:50:00Z enqueued 2026-03-29T00:50:00Z 0s",
        "nightly 2026-03-29T01:00:00Z enqueued 2026-03-29T01:00:00Z 0s",
        "often 2026-03-29T01:00:00Z skipped (overlap) - -",
        "often 2026-03-29T01:10:00Z enqueued 2026-03-29T01:10:00Z 0s",
        "often 2026-03-29T01:20:00Z missed (late) - -",
        "often 2026-03-29T01:30:00Z missed (late) - -",
        "often 2026-03-29T01:40:00Z missed (late) - -",
        "often 2026-03-29T01:50:00Z enqueued 2026-03-29T01:50:00Z 0s",
        "dates 5 enqueued, 3 missed (late), 2 skipped (overlap)",
        "busiest 2026-03-29 00:30 (1 job), 2026-03-29 00:50 (1 job), 2026-03-29 01:00 (1 job), "
        "2026-03-29 01:10 (1 job), 2026-03-29 01:50 (1 job)",
        "most at once 2 jobs",
    ]


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
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err

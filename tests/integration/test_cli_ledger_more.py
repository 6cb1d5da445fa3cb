"""explain, waive, prune, long backfills and the calendar of gaps, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import DAILY, sched, write_definitions
from tests.support.database import connect

BERLIN = """\
  night:
    cron: "30 2 * * *"
    timezone: Europe/Berlin
    start: 2024-01-01
    job: test.noop
    overlap: allow
"""


@pytest.fixture
def applied(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with two schedules applied, named by SCHED_DSN; the operator is ``ann``."""
    monkeypatch.setenv("SCHED_DSN", database)
    monkeypatch.setenv("SCHED_ACTOR", "ann")
    assert sched("apply", str(write_definitions(tmp_path, DAILY + BERLIN))).code == 0
    return database


@pytest.mark.usefixtures("applied")
def test_explain_tells_a_filled_date_in_order() -> None:
    sched("schedules", "trigger", "night", "--date", "2024-03-31", "--reason", "lost")

    document = sched("explain", "night", "2024-03-31", "--json").document
    kinds = [step["kind"] for step in document["steps"]]

    assert (document["schedule"], document["logical_date"]) == ("night", "2024-03-31T01:00:00Z")
    assert kinds == ["definition", "expected", "note", "decided", "job", "job_status"]
    assert all(step.keys() == {"kind", "at", "text", "details"} for step in document["steps"])
    assert document["steps"][3]["details"] == {"state": "enqueued", "reason": "backfill", "by": "ann"}


@pytest.mark.usefixtures("applied")
def test_explain_shows_local_times_to_people() -> None:
    sched("schedules", "trigger", "night", "--date", "2024-03-31")

    head, _, definition, expected, note, *_ = sched("explain", "night", "2024-03-31").out.splitlines()

    assert head == "night 2024-03-31T01:00:00Z"
    assert "revision 1 of night" in definition
    assert expected.startswith("2024-03-31 03:00:00 CEST  expected for 2024-03-31 03:00:00 CEST")
    assert note.startswith(" ")


@pytest.mark.usefixtures("applied")
def test_explain_answers_for_a_date_that_never_was() -> None:
    ended = sched("explain", "daily", "2023-06-01")

    assert ended.code == 0
    assert "not expected: the schedule began on 2024-01-01T00:00:00Z" in ended.out
    assert sched("explain", "daily", "2023-06-01", "--json").document["logical_date"] is None


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("name", "date", "said"),
    [("daly", "2024-03-01", 'there is no schedule "daly"'), ("daily", "March", 'DATE: "March" is not a moment')],
)
def test_explain_refuses_what_it_does_not_know(name: str, date: str, said: str) -> None:
    ended = sched("explain", name, date)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err

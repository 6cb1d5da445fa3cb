"""explain, waive, prune, long backfills and the calendar of gaps, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import DAILY, sched, write_definitions

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


@pytest.mark.usefixtures("applied")
def test_a_waived_date_is_settled_with_its_reason() -> None:
    first = sched("schedules", "waive", "daily", "2024-03-05", "--reason", "no data", "--json")
    again = sched("schedules", "waive", "daily", "2024-03-05", "--reason", "no data", "--json")
    day = ("--since", "2024-03-05", "--until", "2024-03-06", "--schedule", "daily", "--json")

    assert first.document == {"schedule": "daily", "logical_date": "2024-03-05T02:00:00Z", "outcome": "waived"}
    assert (again.code, again.document["outcome"]) == (0, "already_waived")
    assert "waived: no data by ann" in sched("explain", "daily", "2024-03-05").out
    assert sched("gaps", *day).document == {"expected": 1, "settled": 1, "gaps": []}
    assert sched("backfill", *day).document["inserted"] == 0
    assert sched("backfill", *day, "--include", "waived").document["inserted"] == 1
    assert "backfilled by ann, was waived: no data" in sched("explain", "daily", "2024-03-05").out


@pytest.mark.usefixtures("applied")
def test_a_date_with_a_job_is_not_waived() -> None:
    sched("schedules", "trigger", "daily", "--date", "2024-03-05")

    ended = sched("schedules", "waive", "daily", "2024-03-05", "--reason", "late")

    assert (ended.code, "has a job and stays as it is" in ended.out) == (1, True)


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("daily", "2024-03-05"), "Missing option '--reason'"),
        (("daily", "2024-03-05", "--reason", " "), "--reason: say why"),
        (("daily", "2024-03-05T07:00", "--reason", "x"), "daily has no date 2024-03-05T07:00:00; the nearest are"),
        (("dayly", "2024-03-05", "--reason", "x"), 'did you mean "daily"?'),
    ],
)
def test_waiving_needs_a_date_and_a_reason(arguments: tuple[str, ...], said: str) -> None:
    ended = sched("schedules", "waive", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err

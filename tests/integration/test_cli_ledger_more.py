"""explain, waive, prune, long backfills and the calendar of gaps, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.services.retention import Retention
from tests.integration.test_cli_terminal import on_terminal
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
    assert "in queue default (backfill 1: lost), key night:" in document["steps"][4]["text"]


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


MARCH = ("--since", "2024-03-01", "--until", "2024-03-11")


@pytest.mark.usefixtures("applied")
def test_a_dry_run_says_kinds_time_rows_and_what_runs_one_at_a_time() -> None:
    sched("schedules", "waive", "daily", "2024-03-05", "--reason", "no data")

    document = sched("backfill", *MARCH, "--include", "waived", "--dry-run", "--json").document
    told = sched("backfill", *MARCH, "--include", "waived", "--dry-run").err

    assert document["kinds"] == {"missing": 19, "waived": 1}
    assert (document["one_at_a_time"], document["estimate"]) == (["daily"], {"seconds": None, "rows": 80})
    assert "daily: one at a time (overlap: queue); with --overlap allow they run at once" in told
    assert "night: one at a time" not in told
    assert "19 missing, 1 waived; about 80 rows" in told
    assert "20 jobs would be made, 0 dates settled before; nothing was changed" in told


def test_a_dry_run_estimates_by_what_the_jobs_took_before(applied: str) -> None:
    sched("schedules", "trigger", "daily", "--date", "2024-03-01")
    with connect(applied) as connection:
        connection.execute(
            "update sched.jobs set status = 'succeeded', started_at = now() - interval '90 s', completed_at = now(),"
            " holds_overlap = false"
        )

    ended = sched("backfill", *MARCH, "--schedule", "daily", "--dry-run")

    assert "about 13m30s of work, by the usual duration of these jobs" in ended.err


@pytest.fixture
def minutely(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A schedule with 1,440 dates a day since 2024."""
    monkeypatch.setenv("SCHED_DSN", database)
    text = '  often:\n    cron: "* * * * *"\n    start: 2024-01-01\n    job: test.noop\n    overlap: allow\n'
    assert sched("apply", str(write_definitions(tmp_path, text))).code == 0
    return database


WEEK = ("--since", "2024-03-01", "--until", "2024-03-08")


@pytest.mark.usefixtures("minutely")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_very_many_dates_need_yes(more: tuple[str, ...]) -> None:
    ended = sched("backfill", *WEEK, *more)

    assert (ended.code, ended.out) == (2, "")
    assert "this would make 10,080 jobs of 1 schedule; add --yes to make them, --dry-run to see" in ended.err
    assert sched("backfill", "list", "--json").document == {"backfills": []}
    assert sched("backfill", *WEEK, "--dry-run", "--json").document["inserted"] == 10080


@pytest.mark.usefixtures("minutely")
def test_very_many_dates_are_filled_with_yes() -> None:
    ended = sched("backfill", *WEEK, "--yes", "--reason", "new source")

    assert ended.out == "10080 jobs made by backfill 1, 0 dates settled before\n"


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "2024-03-01", "--until", "2199-01-01"), "until 2199-01-01 lies in the future"),
        (("--since", "2024-03-02", "--until", "2024-03-01"), "the range is empty: since 2024-03-02 is not before"),
        (("--since", "2024-03-01", "--schedule", "dayly"), 'there is no schedule "dayly"'),
        (("--since", "2024-03-01", "--include", "done"), '--include: "done" is not known'),
        (("--since", "2024-03-01", "--order", "up"), '--order: "up" is not known; write one of asc, desc'),
        (("--since", "2024-03-01", "--max-active", "0"), "--max-active: 0 is out of range"),
        (("--since", "2024-03-01", "--payload", "[1]"), "--payload must be a JSON object"),
        ((), "backfill needs --since, or one of its commands"),
        (("show", "7"), "there is no backfill 7"),
    ],
)
def test_a_backfill_that_makes_no_sense_is_answered(arguments: tuple[str, ...], said: str) -> None:
    ended = sched("backfill", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_watched_backfill_ends_with_its_last_job(applied: str) -> None:
    sched("backfill", *MARCH, "--schedule", "daily")
    with connect(applied) as connection:
        connection.execute(
            "update sched.jobs set status = case when id = 1 then 'dead' else 'succeeded' end, completed_at = now(),"
            " waiting_for = null, holds_overlap = false"
        )

    ended = sched("backfill", "show", "1", "--watch")

    assert ended.code == 1
    assert ended.err == "10 of 10 ended: 1 dead, 9 succeeded\n"
    assert ended.out.splitlines()[-1].split() == ["jobs", "1", "dead,", "9", "succeeded"]


@pytest.mark.usefixtures("applied")
def test_a_paused_backfill_is_not_watched_for_ever() -> None:
    sched("backfill", *MARCH, "--schedule", "daily")
    sched("backfill", "pause", "1")

    ended = sched("backfill", "show", "1", "--watch", "--json")

    assert (ended.code, ended.document["status"], ended.document["jobs"]) == (0, "paused", {"held": 10})


@pytest.mark.usefixtures("applied")
def test_gaps_of_several_schedules_are_counted_for_each() -> None:
    sched("backfill", "--since", "2024-03-01", "--until", "2024-03-04", "--schedule", "night")

    ended = sched("gaps", *MARCH)

    assert ended.code == 1
    assert ended.err.splitlines() == [
        "daily: 10 expected, 0 settled, 10 missing",
        "night: 10 expected, 3 settled, 7 missing",
        "20 expected, 3 settled, 17 gaps",
    ]


def test_a_terminal_shows_every_day_of_every_schedule(applied: str) -> None:
    sched("backfill", "--since", "2024-03-01", "--until", "2024-03-04", "--schedule", "night")
    sched("schedules", "waive", "night", "2024-03-05", "--reason", "no data")

    code, shown = on_terminal("gaps", *MARCH, "--dsn", applied)
    included, shown_included = on_terminal("gaps", *MARCH, "--include", "waived", "--dsn", applied)

    assert (code, included) == (1, 1)
    assert ["night  ...xwxxxxx" in shown, "daily  xxxxxxxxxx" in shown, "w waived" in shown] == [True] * 3
    assert "20 expected, 4 settled, 16 gaps" in shown
    assert "20 expected, 3 settled, 17 gaps" in shown_included


def test_a_terminal_shows_days_without_gaps_too(applied: str) -> None:
    sched("backfill", *MARCH, "--dsn", applied)

    code, shown = on_terminal("gaps", *MARCH, "--dsn", applied)

    assert code == 0
    assert "daily  .........." in shown
    assert "20 expected, 20 settled, 0 gaps" in shown


@pytest.fixture
def aged(applied: str) -> str:
    """Ten dates of each schedule in March 2024: of ``night`` seven succeeded and three died a year ago."""
    sched("backfill", *MARCH)
    with connect(applied) as connection:
        connection.execute(
            "update sched.jobs set status = case when id % 3 = 0 then 'dead' else 'succeeded' end,"
            " completed_at = now() - '1 y'::interval where schedule = 'night'"
        )
        connection.execute("update sched.events set at = '2024-04-01'")
    return applied


def night_jobs(database: str) -> dict[str, int]:
    with connect(database) as connection:
        rows = connection.execute(
            "select status, count(*) from sched.jobs where schedule = 'night' group by 1"
        ).fetchall()
    return dict(rows)


def test_prune_deletes_what_its_dry_run_counts(aged: str) -> None:
    before = night_jobs(aged)
    counted = sched("prune", "--dry-run", "--json").document
    untouched = night_jobs(aged)
    pruned = sched("prune", "--json").document
    again = sched("prune")

    assert counted["rows"]["succeeded_jobs"] == before["succeeded"]
    assert counted["rows"]["dead_jobs"] == before["dead"]
    assert counted["rows"]["dates"] == 10
    assert pruned["rows"] == counted["rows"]
    assert (counted["dry_run"], pruned["dry_run"], untouched) == (True, False, before)
    assert (again.code, again.out) == (0, "nothing is old enough\n")


def test_prune_stops_at_dates_that_are_not_settled(aged: str) -> None:
    sched("prune")

    with connect(aged) as connection:
        kept = connection.execute(
            "select s.name, count(*) from sched.occurrences o join sched.schedules s on s.id = o.schedule_id"
            " where o.logical_date < '2024-04-01' group by 1"
        ).fetchall()
    assert kept == [("daily", 10)]
    assert sched("gaps", *MARCH, "--schedule", "night").err.startswith(
        "night: dates up to 2024-03-10 01:30 UTC are pruned"
    )


def test_prune_keeps_what_it_is_told_to_keep(aged: str) -> None:
    before = night_jobs(aged)
    ended = sched(
        "prune", "--keep-jobs", "1000d", "--keep-dead", "7d", "--keep-ledger", "10000d", "--keep-events", "10000d"
    )

    assert ended.out == f"gone:\ndead jobs  {before['dead']}\n"
    assert night_jobs(aged) == {"succeeded": before["succeeded"]}


def test_prune_shows_its_progress_on_a_terminal(aged: str) -> None:
    code, shown = on_terminal("prune", "--dsn", aged)

    assert (code, "dates" in shown) == (0, True)


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("--keep-jobs", "30", "--keep-jobs: 30 has no unit"),
        ("--keep-ledger", "1m", "--keep-ledger: 1m is too short; it must be at least 3600s"),
    ],
)
def test_prune_refuses_times_that_make_no_sense(flag: str, text: str, said: str) -> None:
    ended = sched("prune", flag, text)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_the_help_of_prune_names_the_defaults() -> None:
    shown = " ".join(sched("prune", "--help").out.split())
    kept = Retention()

    assert kept.ledger is None
    for what, time in (
        ("succeeded and cancelled jobs", kept.succeeded),
        ("succeeded and cancelled jobs", kept.cancelled),
        ("dead jobs", kept.dead),
        ("results of pruned jobs", kept.results),
        ("events", kept.events),
    ):
        assert f"How long {what} stay. [default: ({time.days}d)]" in shown


def test_status_counts_overdue_dates_and_schedules_without_dates_ahead(applied: str) -> None:
    with connect(applied) as connection:
        connection.execute("update sched.schedule_revisions set finish_by = '1 minute'")
        connection.execute("update sched.occurrences set due_at = now() - '1 h'::interval where schedule_id = 1")
        connection.execute("update sched.schedules set planned_until = now() - '1 h'::interval where id = 1")

    people, document = sched("status"), sched("status", "--json").document

    assert (document["overdue"] >= 1, document["ended_horizons"]) == (True, 1)
    assert f"overdue      {document['overdue']} dates not done by finish_by" in people.out.replace(
        "date not", "dates not"
    )
    assert "not planned  1 schedule without dates ahead" in people.out


def test_a_backfill_that_was_killed_while_filling_is_not_watched_for_ever(
    applied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.interfaces.cli.backfills.WATCH_SECONDS", 0)
    sched("backfill", *MARCH, "--schedule", "daily")
    with connect(applied) as connection:
        connection.execute("update sched.backfills set status = 'filling', completed_at = null")
        connection.execute(
            "update sched.jobs set status = 'succeeded', completed_at = now(), waiting_for = null,"
            " holds_overlap = false"
        )

    assert sched("backfill", "show", "1", "--watch", "--json").document["jobs"] == {"succeeded": 10}

"""gaps, backfill and status, through the command line: the JSON that scripts rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import DAILY, sched, write_definitions
from tests.support.database import connect

RANGE = ("--since", "2024-03-01", "--until", "2024-03-11")
TEN_DATES = [f"2024-03-{day:02d}T02:00:00Z" for day in range(1, 11)]


@pytest.fixture
def applied(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the daily schedule applied, named by SCHED_DSN."""
    monkeypatch.setenv("SCHED_DSN", database)
    assert sched("apply", str(write_definitions(tmp_path, DAILY))).code == 0
    return database


@pytest.mark.usefixtures("applied")
def test_gaps_lists_dates_without_a_row() -> None:
    ended = sched("gaps", *RANGE, "--json")

    assert (ended.code, ended.err) == (1, "")
    assert ended.document == {
        "expected": 10,
        "settled": 0,
        "gaps": [{"schedule": "daily", "logical_date": date, "kind": "missing"} for date in TEN_DATES],
    }


@pytest.mark.usefixtures("applied")
def test_backfill_fills_what_gaps_found_and_then_nothing() -> None:
    first = sched("backfill", *RANGE, "--json")
    second = sched("backfill", *RANGE, "--json")
    gaps = sched("gaps", *RANGE, "--json")

    assert (first.code, first.document["inserted"], first.document["already"]) == (0, 10, 0)
    assert first.document["logical_dates"] == [{"schedule": "daily", "logical_date": date} for date in TEN_DATES]
    assert (second.document["inserted"], second.document["already"], second.document["logical_dates"]) == (0, 10, [])
    assert (gaps.code, gaps.document) == (0, {"expected": 10, "settled": 10, "gaps": []})


def test_a_dry_run_names_the_dates_and_makes_nothing(applied: str) -> None:
    ended = sched("backfill", *RANGE, "--dry-run", "--json")

    with connect(applied) as connection:
        rows = connection.execute(
            "select (select count(*) from sched.jobs), (select count(*) from sched.backfills)"
        ).fetchone()
    assert [date["logical_date"] for date in ended.document["logical_dates"]] == TEN_DATES
    assert (ended.code, ended.document["dry_run"], rows) == (0, True, (0, 0))


@pytest.mark.usefixtures("applied")
def test_gaps_are_a_table_for_people_with_the_counts_on_stderr() -> None:
    ended = sched("gaps", "--since", "2024-03-01", "--until", "2024-03-02")

    assert ended.out == "SCHEDULE  LOGICAL DATE          KIND\ndaily     2024-03-01T02:00:00Z  missing\n"
    assert ended.err == "1 expected, 0 settled, 1 gap\n"


def test_a_local_time_that_happens_twice_is_answered_with_both_instants(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = DAILY.replace("daily", "local") + "    timezone: Europe/Berlin\n"
    monkeypatch.setenv("SCHED_DSN", database)
    sched("apply", str(write_definitions(tmp_path, DAILY + local)))

    both = sched("gaps", "--since", "2024-10-27T02:30")
    other = sched("gaps", "--since", "2024-10-27T02:30", "--schedule", "daily", "--json")

    assert (both.code, both.err) == (
        2,
        "error: 2024-10-27T02:30:00 happens twice in Europe/Berlin, at 2024-10-27T00:30:00Z and 2024-10-27T01:30:00Z; "
        "write one of these instants\n",
    )
    assert other.code == 1


@pytest.mark.usefixtures("applied")
def test_a_dry_run_says_that_jobs_run_one_at_a_time() -> None:
    ended = sched("backfill", *RANGE, "--dry-run")

    assert "daily: one at a time (overlap: queue); with --overlap allow they run at once" in ended.err


@pytest.mark.usefixtures("applied")
def test_the_newest_date_goes_first_when_asked_for() -> None:
    sched("backfill", *RANGE, "--order", "desc")

    (first,) = sched("jobs", "list", "--status", "pending", "--json").document["jobs"]
    assert first["logical_date"] == TEN_DATES[-1]


@pytest.mark.usefixtures("applied")
def test_a_backfill_is_listed_paused_resumed_and_cancelled() -> None:
    made = sched("backfill", *RANGE, "--reason", "late data", "--json").document["backfill"]
    number = str(made)

    (listed,) = sched("backfill", "list", "--json").document["backfills"]
    paused = sched("backfill", "pause", number, "--json").document
    held = sched("backfill", "show", number, "--json").document
    resumed = sched("backfill", "resume", number, "--json").document
    cancelled = sched("backfill", "cancel", number, "--json").document
    again = sched("backfill", "cancel", number)

    assert (listed["id"], listed["reason"], listed["inserted"]) == (made, "late data", 10)
    assert (paused, held["jobs"]) == ({"backfill": made, "status": "paused", "jobs": 10}, {"held": 10})
    assert (resumed["status"], cancelled) == ("filled", {"backfill": made, "status": "cancelled", "jobs": 10})
    assert (again.code, again.err) == (
        2,
        f"error: backfill {made} is cancelled: there is nothing to cancel\n",
    )


def test_dates_whose_job_ended_are_run_again_when_asked_for(applied: str) -> None:
    sched("backfill", *RANGE)
    with connect(applied) as connection:
        connection.execute(
            """
            update sched.jobs
            set status = 'succeeded', completed_at = now(), waiting_for = null, holds_overlap = false
            where logical_date < '2024-03-03'
            """
        )

    plain = sched("backfill", *RANGE, "--json")
    rerun = sched("backfill", *RANGE, "--rerun", "--json")

    assert (plain.code, plain.document["inserted"]) == (0, 0)
    assert (rerun.code, rerun.document["inserted"], len(rerun.document["unfinished"])) == (1, 2, 8)


def test_a_backfill_records_who_asked_and_why(applied: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_ACTOR", "operator")

    sched("backfill", *RANGE, "--reason", "late data", "--priority", "500")

    with connect(applied) as connection:
        row = connection.execute("select actor, reason, since, until, inserted from sched.backfills").fetchone()
        priorities = connection.execute("select distinct priority from sched.jobs").fetchall()
    assert row == ("operator", "late data", "2024-03-01", "2024-03-11", 10)
    assert priorities == [(500,)]


@pytest.mark.usefixtures("applied")
def test_skipped_dates_are_gaps_only_when_asked_for(applied: str) -> None:
    sched("backfill", *RANGE)
    with connect(applied) as connection:
        connection.execute(
            "update sched.occurrences set state = 'skipped', reason = 'paused', job_id = null where job_id is not null"
        )

    plain = sched("gaps", *RANGE, "--json")
    included = sched("gaps", *RANGE, "--include", "skipped", "--json")

    assert (plain.code, plain.document["settled"]) == (0, 10)
    assert (included.code, {gap["kind"] for gap in included.document["gaps"]}) == (1, {"skipped"})


@pytest.mark.usefixtures("applied")
def test_status_counts_everything_there_is() -> None:
    sched("backfill", *RANGE)

    document = sched("status", "--json").document

    assert document["jobs"] == {
        "scheduled": 0, "waiting": 9, "pending": 1, "running": 0, "held": 0, "succeeded": 0, "dead": 0, "cancelled": 0,
    }  # fmt: skip
    assert document["occurrences"]["enqueued"] == 10
    assert document["oldest_ready_seconds"] >= 0
    assert (document["expired_leases"], document["schedules"]) == (0, 1)
    assert document["next_due_at"].endswith("T02:00:00Z")


def test_status_counts_expired_leases(applied: str) -> None:
    with connect(applied) as connection:
        connection.execute(
            """
            insert into sched.jobs (job_type, status, lease_owner, lease_token, lease_expires_at)
            values ('a', 'running', gen_random_uuid(), gen_random_uuid(), now() - interval '1 minute'),
                   ('a', 'running', gen_random_uuid(), gen_random_uuid(), now() + interval '1 minute')
            """
        )

    assert sched("status", "--json").document["expired_leases"] == 1


@pytest.mark.usefixtures("database")
def test_status_of_an_empty_database_is_readable(database: str) -> None:
    ended = sched("status", "--dsn", database)

    assert ended.code == 0
    assert ended.out.splitlines()[0] == "schedules  0 in force"

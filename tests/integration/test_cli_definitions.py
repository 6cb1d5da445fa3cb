"""Commands about definition files, through the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.cli import DAILY, REPOSITORY, sched, write_definitions
from tests.support.database import connect


def test_lint_says_that_good_files_have_no_problems(tmp_path: Path) -> None:
    ended = sched("lint", str(write_definitions(tmp_path, DAILY)))

    assert (ended.code, ended.out, ended.err) == (0, f"1 schedule in {tmp_path}: no problems, 0 warnings\n", "")


def test_lint_shows_every_problem_with_its_place(tmp_path: Path) -> None:
    write_definitions(tmp_path, '  a: {cron: "61 * * * *", job: x}\n')
    write_definitions(tmp_path, '  b: {cron: "0 0 * * *", job: x, timezone: Europe/Berln}\n', "b.yaml")

    ended = sched("lint", str(tmp_path))

    lines = ended.err.splitlines()
    assert (ended.code, ended.out, len(lines)) == (2, "", 2)
    assert f"{tmp_path}/b.yaml:5:44" in lines[0]
    assert 'did you mean "Europe/Berlin"?' in lines[0]
    assert f"{tmp_path}/schedules.yaml:5:" in lines[1]


def test_lint_shows_twenty_problems_and_counts_the_rest(tmp_path: Path) -> None:
    write_definitions(tmp_path, "".join(f'  s{number}: {{cron: "99 * * * *", job: x}}\n' for number in range(25)))

    ended = sched("lint", str(tmp_path))

    lines = ended.err.splitlines()
    assert (ended.code, len(lines), lines[-1]) == (2, 21, "error: and 5 more problems")


def test_lint_gives_problems_as_one_document(tmp_path: Path) -> None:
    write_definitions(tmp_path, '  a: {cron: "61 * * * *", job: x}\n')

    ended = sched("lint", str(tmp_path), "--json")

    (problem,) = ended.document["problems"]
    assert (ended.code, problem["line"], problem["path"]) == (2, 5, "a.cron")


def test_lint_warns_about_a_schedule_that_never_fires(tmp_path: Path) -> None:
    write_definitions(tmp_path, '  parked: {cron: "0 0 30 2 *", job: x}\n')

    ended = sched("lint", str(tmp_path))

    assert ended.code == 0
    assert "parked.cron: never fires" in ended.err


def test_schema_is_the_one_in_the_package() -> None:
    shipped = json.loads((REPOSITORY / "scheduler" / "schedule.schema.json").read_text())

    assert sched("schema").document == shipped


def test_preview_answers_for_an_expression() -> None:
    ended = sched(
        "preview", "--cron", "0 2 * * *", "--timezone", "Europe/Berlin", "--from", "2026-03-28T12:00:00Z", "--count",
        "2", "--json",
    )  # fmt: skip

    assert (ended.code, ended.err) == (0, "")
    assert ended.document == {
        "firings": [
            {
                "logical_date": "2026-03-29T01:00:00Z",
                "due_at": "2026-03-29T01:00:00Z",
                "local": "2026-03-29T03:00:00+02:00",
            },
            {
                "logical_date": "2026-03-30T00:00:00Z",
                "due_at": "2026-03-30T00:00:00Z",
                "local": "2026-03-30T02:00:00+02:00",
            },
        ]
    }


def test_preview_begins_with_the_moment_asked_for() -> None:
    ended = sched("preview", "--cron", "0 2 * * *", "--from", "2026-03-28T02:00", "--count", "1", "--json")

    assert ended.document["firings"][0]["logical_date"] == "2026-03-28T02:00:00Z"


def test_preview_shows_schedules_of_a_folder(tmp_path: Path) -> None:
    write_definitions(tmp_path, DAILY)

    ended = sched("preview", "daily", "--dir", str(tmp_path), "--from", "2024-05-01", "--count", "2")

    assert ended.out.splitlines()[:3] == [
        "daily: at 02:00, every day (UTC)",
        "LOCAL TIME               OFFSET     UTC",
        "Wed 2024-05-01 02:00:00  +0000 UTC  2024-05-01T02:00:00Z",
    ]


def test_preview_of_a_rule_that_never_fires_says_so() -> None:
    ended = sched("preview", "--cron", "0 0 30 2 *")

    assert ended.code == 0
    assert "never fires again" in ended.err


def test_one_date_is_not_called_dates(database: str, tmp_path: Path) -> None:
    fortnightly = DAILY.replace('cron: "0 2 * * *"', "every: 14d")
    planned = sched("plan", str(write_definitions(tmp_path, fortnightly)), "--dsn", database)
    assert planned.out.splitlines()[1].strip().startswith("1 date appears until ")


def test_plan_shows_what_apply_then_does(database: str, tmp_path: Path) -> None:
    folder = str(write_definitions(tmp_path, DAILY))

    planned = sched("plan", folder, "--dsn", database)
    with connect(database) as connection:
        count = connection.execute("select count(*) from sched.schedules").fetchone()
    applied = sched("apply", folder, "--dsn", database, "--json")

    added, dates, count_of_changes = planned.out.splitlines()
    assert (added, count_of_changes) == ("added    daily", "1 change to make, 1 schedule in files")
    assert dates.strip().startswith("14 dates appear until ")
    assert count == (0,)
    assert [(change["kind"], change["name"]) for change in applied.document["changes"]] == [("added", "daily")]


def test_applying_again_changes_nothing(database: str, tmp_path: Path) -> None:
    folder = str(write_definitions(tmp_path, DAILY))
    sched("apply", folder, "--dsn", database)

    ended = sched("apply", folder, "--dsn", database)

    assert (ended.code, ended.out) == (0, "0 changes made, 1 schedule in files\n")


def test_a_changed_field_is_shown_with_both_values(database: str, tmp_path: Path) -> None:
    folder = str(write_definitions(tmp_path, DAILY))
    sched("apply", folder, "--dsn", database)
    write_definitions(tmp_path, DAILY.replace("0 2", "0 3"))

    ended = sched("plan", folder, "--dsn", database, "--json")

    (change,) = ended.document["changes"]
    assert change["kind"] == "changed"
    assert {"field": "timing.rule", "old": {"cron": "0 2 * * *"}, "new": {"cron": "0 3 * * *"}} in change["fields"]


def test_plan_shows_dates_that_move_and_jobs_that_are_unfinished(database: str, tmp_path: Path) -> None:
    """Neither time of day is near now: of a date that moves past the end of the 14 days, only one side would count."""
    hour = (datetime.now(UTC).hour + 6) % 24
    folder = str(write_definitions(tmp_path, DAILY.replace("0 2", f"0 {hour}")))
    sched("apply", folder, "--dsn", database)
    sched("backfill", "--since", "2024-03-01", "--until", "2024-03-03", "--dsn", database)
    write_definitions(tmp_path, DAILY.replace("0 2", f"30 {hour}"))

    (change,) = sched("plan", folder, "--dsn", database, "--json").document["changes"]
    text = sched("plan", folder, "--dsn", database).out

    assert (change["dates"]["move"], change["unfinished_jobs"]) == (14, 2)
    assert change["dates"]["first_moving"][0]["to"].endswith(f"T{hour:02}:30:00Z")
    assert "14 dates move until" in text
    assert "2 jobs of it unfinished" in text


def test_a_folder_that_would_retire_everything_is_refused(database: str, tmp_path: Path) -> None:
    sched("apply", str(write_definitions(tmp_path / "full", DAILY)), "--dsn", database)
    empty = tmp_path / "empty"
    empty.mkdir()

    ended = sched("apply", str(empty), "--dsn", database)

    assert (ended.code, ended.out) == (2, "")
    assert "--allow-retire" in ended.err


@pytest.mark.parametrize("first", [True, False], ids=["before the command", "after the command"])
def test_the_database_is_named_before_or_after_the_command(database: str, first: bool) -> None:
    arguments = ["--dsn", database, "status"] if first else ["status", "--dsn", database]

    assert sched(*arguments).code == 0


def test_migrate_creates_the_schema_once(empty_database: str) -> None:
    first = sched("migrate", "--dsn", empty_database, "--json")
    second = sched("migrate", "--dsn", empty_database, "--json")

    assert first.document["applied"][0] == "0001_initial"
    assert second.document == {"applied": []}


def test_migrate_prints_sql_without_a_database() -> None:
    ended = sched("migrate", "--sql")

    assert ended.code == 0
    assert ended.out.startswith("begin;\n")
    assert ended.out.rstrip().endswith("commit;")

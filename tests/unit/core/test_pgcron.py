"""The jobs asked of pg_cron, by its version, and how they differ from what is installed."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pglast
import pytest

from scheduler.core.pgcron import (
    CronJob,
    DriftKind,
    InstalledJob,
    Version,
    compare,
    job_name,
    parse_version,
    quoted,
    script,
    wanted_jobs,
)

OLD, DEBIAN, SECONDS = Version(1, 3), Version(1, 4), Version(1, 6)
HOSTILE = ["O'Brien", 'a"b', "back\\slash", "x; drop table jobs", "$$", "$cron$", "100%", "naïve", "two\nlines", "%s"]


def installed(job: CronJob, **changes: Any) -> InstalledJob:
    return dataclasses.replace(
        InstalledJob(
            id=1,
            name=job.name,
            schedule=job.schedule,
            command=job.command,
            database=job.database,
            role="app",
            is_active=True,
            port=5432,
        ),
        **changes,
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.4-1", DEBIAN), ("1.3", OLD), ("1.6", SECONDS), ("1.10", Version(1, 10)), ("2.0", Version(2, 0))],
)
def test_versions_are_read_as_the_extension_writes_them(text: str, version: Version) -> None:
    assert parse_version(text) == version


def test_versions_compare_by_number() -> None:
    assert Version(1, 10) > Version(1, 9)


@pytest.mark.parametrize("version", [OLD, DEBIAN])
def test_before_1_5_no_schedule_uses_what_the_version_lacks(version: Version) -> None:
    assert {job.schedule for job in wanted_jobs(version, "orders", "orders")} == {"* * * * *", "17 * * * *"}


def test_from_1_5_on_the_beat_is_seconds() -> None:
    beat, _, reap = wanted_jobs(SECONDS, "orders", "postgres")
    assert (beat.schedule, reap.schedule) == ("5 seconds", "5 seconds")


def test_the_purge_runs_where_the_history_is_and_the_rest_where_the_schedules_are() -> None:
    assert [job.database for job in wanted_jobs(DEBIAN, "orders", "postgres")] == ["orders", "postgres", "orders"]


def test_each_command_is_one_statement() -> None:
    for job in wanted_jobs(DEBIAN, "orders", "postgres"):
        assert len(pglast.parse_sql(job.command)) == 1


@pytest.mark.parametrize("database", [*HOSTILE, "x" * 63])
def test_a_job_has_a_plain_short_name_and_command_whatever_the_database_is_called(database: str) -> None:
    for job in wanted_jobs(DEBIAN, database, "postgres"):
        assert re.fullmatch(r"sched-(beat|purge|reap)-[0-9a-f]{8}", job.name)
        assert database not in job.command or database in "%s 100%"


def test_two_databases_never_share_a_job() -> None:
    assert job_name("beat", "orders") != job_name("beat", "orders2")


def test_what_is_installed_as_wanted_is_no_drift() -> None:
    wanted = wanted_jobs(DEBIAN, "orders", "postgres")
    assert compare(wanted, [installed(job) for job in wanted], 5432) == []


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"schedule": "*/5 * * * *"}, DriftKind.CHANGED, 'schedule is "*/5 * * * *", wanted "* * * * *"'),
        ({"command": "select 1"}, DriftKind.CHANGED, 'command is "select 1", wanted "call sched.beat()"'),
        ({"database": "older"}, DriftKind.CHANGED, 'database is "older", wanted "orders"'),
        ({"port": 5433}, DriftKind.CHANGED, "it connects to port 5433, and the server has 5432"),
        ({"is_active": False}, DriftKind.PAUSED, "is paused"),
        ({"name": "sched-old-12345678"}, DriftKind.SURPLUS, "is not wanted any more"),
    ],
)
def test_every_difference_is_named(changes: dict[str, Any], kind: DriftKind, said: str) -> None:
    beat, purge, reap = wanted_jobs(DEBIAN, "orders", "postgres")
    drift = compare([beat, purge, reap], [installed(beat, **changes), installed(purge), installed(reap)], 5432)
    assert drift[-1].kind is kind
    assert said in str(drift[-1])


def test_a_missing_job_is_named() -> None:
    beat, purge, reap = wanted_jobs(DEBIAN, "orders", "postgres")
    assert [str(drift) for drift in compare([beat, purge, reap], [installed(beat), installed(reap)], 5432)] == [
        f"{purge.name} is missing"
    ]


@pytest.mark.parametrize("database", ["orders", *HOSTILE])
@pytest.mark.parametrize("cron_database", ["orders", "postgres"])
@pytest.mark.parametrize("version", [OLD, DEBIAN, SECONDS])
def test_a_script_is_deterministic_and_has_nothing_but_its_own_statements(
    database: str, cron_database: str, version: Version
) -> None:
    jobs = wanted_jobs(version, database, cron_database)
    text = script(version, database, cron_database, jobs)
    assert text == script(version, database, cron_database, jobs)
    kinds = [type(statement.stmt).__name__ for statement in pglast.parse_sql(text)]
    assert kinds == ["VariableSetStmt", "TransactionStmt", *["SelectStmt"] * 4, "TransactionStmt"]
    assert all(line.startswith("--") for line in text.splitlines()[:5])


def test_before_1_4_a_script_names_no_function_that_does_not_exist() -> None:
    assert "schedule_in_database" not in script(OLD, "orders", "orders", wanted_jobs(OLD, "orders", "orders"))


def test_literals_are_quoted() -> None:
    assert quoted("O'Brien\\") == "'O''Brien\\'"

"""The cases CR-01, CR-04, TZ-01 to TZ-03, TZ-05, TZ-08 and DT-04 to DT-07 as far as they are about jobs and tables.

Right values are literals. What the expressions and files mean by themselves is in ``tests/unit/core``; TZ-09 is
in ``test_tzdata_change``, and what reaches pg_cron (CR-05, DT-07) in ``test_pgcron``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from psycopg import sql

from scheduler.core.models import Catchup, CatchupPolicy, Cron, Definition, OverlapPolicy, Timing
from scheduler.handlers import HandlerRegistry, Job
from scheduler.storage.database import Connection
from tests.support.cli import sched, write_definitions
from tests.support.cluster import Cluster
from tests.support.database import connect
from tests.support.virtual import apply_at, fired, tick_at, utc
from tests.support.working import drain, enqueue, job_row

MINUTE = timedelta(minutes=1)


def backfilled(database: str, folder: Path, line: str, since: str, until: str) -> list[str]:
    """The logical dates of the jobs that a backfill over ``[since, until)`` makes; a second one makes none."""
    write_definitions(folder, f"  s: {{{line}, start: 2000-01-01, job: x}}\n")
    sched("apply", str(folder), "--dsn", database)
    asked = ("backfill", "--since", since, "--until", until, "--yes", "--dsn", database, "--json")
    first, second = sched(*asked), sched(*asked)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    with connect(database) as connection:
        rows = connection.execute("select logical_date from sched.jobs order by 1").fetchall()
    return [f"{row[0]:%Y-%m-%dT%H:%MZ}" for row in rows]


@pytest.mark.parametrize(
    ("line", "since", "until", "right"),
    [
        pytest.param(
            'cron: "0 16 */2 * SAT", timezone: UTC',
            "2023-05-01",
            "2023-07-01",
            ["2023-05-13T16:00Z", "2023-05-27T16:00Z", "2023-06-03T16:00Z", "2023-06-17T16:00Z"],
            id="CR-01",
        ),
        pytest.param(
            'cron: "30 2 * * *", timezone: America/New_York',
            "2026-03-07",
            "2026-03-10",
            ["2026-03-07T07:30Z", "2026-03-08T07:00Z", "2026-03-09T06:30Z"],
            id="TZ-01",
        ),
        pytest.param(
            'cron: "0 12 * * *", timezone: Pacific/Apia',
            "2011-12-28",
            "2012-01-02",
            [
                "2011-12-28T22:00Z",
                "2011-12-29T22:00Z",
                "2011-12-30T10:00Z",
                "2011-12-30T22:00Z",
                "2011-12-31T22:00Z",
            ],
            id="TZ-05 noon",
        ),
        pytest.param(
            'cron: "0 0 * * *", timezone: Pacific/Apia',
            "2011-12-29",
            "2012-01-01",
            ["2011-12-29T10:00Z", "2011-12-30T10:00Z"],
            id="TZ-05 midnight",
        ),
        pytest.param(
            'cron: "30 2 * * *", timezone: America/New_York',
            "2025-03-07",
            "2025-03-12",
            ["2025-03-07T07:30Z", "2025-03-08T07:30Z", "2025-03-09T07:00Z", "2025-03-10T06:30Z", "2025-03-11T06:30Z"],
            id="TZ-08 after the gap",
        ),
        pytest.param(
            'cron: "0 0 31 * *", timezone: UTC',
            "2025-01-01",
            "2025-07-01",
            ["2025-01-31T00:00Z", "2025-03-31T00:00Z", "2025-05-31T00:00Z"],
            id="TZ-08 the 31st",
        ),
    ],
)
def test_a_backfill_makes_the_right_jobs_once(
    database: str, tmp_path: Path, line: str, since: str, until: str, right: list[str]
) -> None:
    assert backfilled(database, tmp_path, line, since, until) == right


def test_cr_04_a_parked_schedule_keeps_nobody_waiting_and_shows_never(
    database: str, db: Connection, tmp_path: Path
) -> None:
    folder = write_definitions(
        tmp_path, '  parked: {cron: "0 0 31 2 *", job: x}\n  hourly: {cron: "0 * * * *", job: x}\n'
    )
    linted = sched("lint", str(folder))
    assert (linted.code, "parked.cron: never fires" in linted.err) == (0, True)
    apply_at(
        db,
        utc("2026-03-02 07:30"),
        *(
            Definition(name=name, owner="team", timing=Timing(name=name, rule=Cron(expression=cron)), job_type="x")
            for name, cron in (("parked", "0 0 31 2 *"), ("hourly", "0 * * * *"))
        ),
    )
    tick_at(db, utc("2026-03-02 08:00"))
    db.execute("update sched.state set host = 'pg_cron'")
    db.execute("update sched.schedules set plan_at = '2026-03-02T08:01Z'")
    tick_at(db, utc("2026-03-02 08:02"))
    assert fired(db, "hourly") == [utc("2026-03-02 08:00")]
    assert db.execute(
        "select count(*) from sched.occurrences o join sched.schedules s on s.id = o.schedule_id"
        " where s.name = 'parked'"
    ).fetchone() == (0,)
    listed = sched("schedules", "list", "--dsn", database).out
    (parked,) = [line for line in listed.splitlines() if "parked" in line]
    assert "never" in parked
    documents = sched("schedules", "list", "--dsn", database, "--json").document["schedules"]
    assert {each["name"]: each["fires_again"] for each in documents} == {"hourly": True, "parked": False}


def test_tz_02_ticks_through_the_repeated_hour_make_one_job_and_a_backfill_adds_none(
    database: str, db: Connection
) -> None:
    timing = Timing(
        name="s", rule=Cron(expression="30 1 * * *"), timezone="America/New_York", start=utc("2026-10-31 04:00")
    )
    definition = Definition(
        name="s", owner="team", timing=timing, job_type="x", catchup=Catchup(policy=CatchupPolicy.ALL)
    )
    apply_at(db, utc("2026-10-31 04:00"), definition)
    tick_at(db, utc("2026-10-31 06:00"))
    for minute in range(121):
        tick_at(db, utc("2026-11-01 05:00") + minute * MINUTE)
    right = [utc("2026-10-31 05:30"), utc("2026-11-01 05:30")]
    assert fired(db, "s") == right
    asked = ("backfill", "--since", "2026-10-31", "--until", "2026-11-02", "--yes", "--dsn", database)
    assert sched(*asked).code == 0
    jobs = db.execute("select logical_date from sched.jobs order by 1").fetchall()
    assert [row[0] for row in jobs] == right


@pytest.mark.parametrize(
    ("cron", "timezone", "since", "until", "count"),
    [
        ("0 * * * *", "America/Los_Angeles", "2026-11-01 06:59", "2026-11-01 10:00", 4),
        ("*/15 * * * *", "Europe/London", "2026-10-24 23:59", "2026-10-25 02:00", 9),
    ],
)
def test_tz_03_jobs_of_both_passes_are_told_apart_by_instant(
    db: Connection, cron: str, timezone: str, since: str, until: str, count: int
) -> None:
    definition = Definition(
        name="s",
        owner="team",
        timing=Timing(name="s", rule=Cron(expression=cron), timezone=timezone),
        job_type="x",
        overlap=OverlapPolicy.ALLOW,
    )
    apply_at(db, utc(since), definition)
    now = utc(since)
    while now <= utc(until):
        tick_at(db, now)
        now += MINUTE
    step = timedelta(hours=1) if count == 4 else timedelta(minutes=15)
    first = utc(since) + MINUTE
    assert fired(db, "s") == [first + step * n for n in range(count)]
    keys = {row[0] for row in db.execute("select idempotency_key from sched.jobs").fetchall()}
    assert len(keys) == count


def test_dt_04_bad_files_stop_no_schedule_that_is_in_force_and_retire_none(
    database: str, db: Connection, tmp_path: Path
) -> None:
    """All files of an owner are applied or none: a schedule whose file became bad goes on as it was."""
    for number in range(3):
        write_definitions(tmp_path, f"  s{number}: {{every: 1h, job: x}}\n", f"{number}.yaml")
    assert sched("apply", str(tmp_path), "--dsn", database).code == 0
    before = db.execute("select name, revision, retired_at from sched.schedules order by 1").fetchall()
    (tmp_path / "1.yaml").write_text("version: 1\nowner: team\nschedules: {s1: {every: 5, job: x}}\n")
    (tmp_path / "2.yaml").write_text("version: 1\nschedules: [")
    write_definitions(tmp_path, "  s0: {every: 2h, job: x}\n", "0.yaml")
    db.execute(
        "update sched.occurrences set due_at = now() where logical_date = (select min(logical_date) from"
        " sched.occurrences)"
    )
    ended = sched("tick", "--once", "--apply", str(tmp_path), "--dsn", database, "--json")
    assert (ended.code, ended.document["enqueued"]) == (2, 3)
    assert "1.yaml:3:" in ended.err and "2.yaml:2:" in ended.err
    assert db.execute("select name, revision, retired_at from sched.schedules order by 1").fetchall() == before


def test_dt_05_a_nul_in_an_error_or_a_result_ends_the_attempt_as_failed(database: str) -> None:
    registry = HandlerRegistry()

    @registry.handler("raises")
    def raises(job: Job) -> None:
        raise ValueError("a\0b")

    @registry.handler("returns")
    def returns(job: Job) -> str:
        return "a\0b"

    jobs = [enqueue(database, kind, max_attempts=1) for kind in ("raises", "returns")]
    drain(database, registry)
    rows = [job_row(database, job) for job in jobs]
    assert [row["status"] for row in rows] == ["dead", "dead"]
    assert rows[0]["last_error"].startswith("ValueError: a\N{REPLACEMENT CHARACTER}b")
    assert rows[1]["last_error"].startswith("the handler's result cannot be stored: result")


def test_dt_06_a_database_without_an_encoding_works_the_same(server: Cluster, tmp_path: Path) -> None:
    """With SQL_ASCII, psycopg returns bytes for text unless it is told what the client speaks."""
    name = "dt_06"
    with connect(server.dsn()) as admin:
        create = "create database {} encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"
        admin.execute(sql.SQL(create).format(sql.Identifier(name)))
    dsn = server.dsn(name)
    try:
        folder = write_definitions(
            tmp_path, '  s: {cron: "0 0 * * *", start: 2026-01-01, job: x, payload: {name: "na\u00efve \u20ac"}}\n'
        )
        for _ in range(2):
            assert sched("migrate", "--dsn", dsn).code == 0
            assert sched("apply", str(folder), "--dsn", dsn).code == 0
        assert sched("apply", str(folder), "--dsn", dsn, "--json").document["changes"] == []
        asked = ("backfill", "--since", "2026-01-01", "--until", "2026-01-02", "--yes", "--dsn", dsn)
        assert sched(*asked).code == 0
        assert sched("tick", "--once", "--dsn", dsn).code == 0
        registry, seen = HandlerRegistry(), []

        @registry.handler("x")
        def handle(job: Job) -> dict[str, str]:
            seen.append((job.schedule, job.payload))
            return {"said": "\u00e9\u20ac"}

        drain(dsn, registry)
        assert seen == [("s", {"name": "na\u00efve \u20ac"})]
        with connect(dsn) as connection:
            row = connection.execute("select status, schedule, result from sched.jobs").fetchone()
        assert row == ("succeeded", "s", {"said": "\u00e9\u20ac"})
        assert sched("explain", "s", "2026-01-01", "--dsn", dsn).code == 0
    finally:
        with connect(server.dsn()) as admin:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_dt_07_hostile_texts_in_a_payload_reach_the_job_as_they_are(
    database: str, db: Connection, tmp_path: Path
) -> None:
    texts = ["O'Brien", 'a"b', "back\\slash", "x; drop table jobs", "$$", "$cron$", "100%", "na\u00efve", "two\nlines"]
    listed = ", ".join(
        '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' for text in texts
    )
    name = db.info.dbname
    db.execute(sql.SQL("alter database {} set standard_conforming_strings = off").format(sql.Identifier(name)))
    folder = write_definitions(
        tmp_path, f"  s: {{every: 1h, start: 2026-01-01, job: x, payload: {{texts: [{listed}]}}}}\n"
    )
    assert sched("apply", str(folder), "--dsn", database).code == 0
    asked = ("backfill", "--since", "2026-01-01T00:00Z", "--until", "2026-01-01T01:00Z", "--yes", "--dsn", database)
    assert sched(*asked).code == 0
    rows = db.execute("select payload -> 'texts' from sched.jobs").fetchall()
    assert rows == [(texts,)]

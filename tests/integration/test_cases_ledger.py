"""Cases reported against other schedulers, about missed firings, catch-up, backfill and failover: MF-* and HA-*.

Each has the right values as literals. Moments are passed to the real planner, apply and ``sched.fire``; a tick is
always that of a process started afresh, so nothing here lives in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.core.models import Definition, OverlapPolicy
from scheduler.services.planner import Planner
from scheduler.services.tick import Ticker
from scheduler.storage.database import Connection
from tests.support.build import Policy, add_schedule, fire, plan_date
from tests.support.cli import Ended, sched_process, write_definitions
from tests.support.cluster import Cluster
from tests.support.database import connect
from tests.support.fleet import fleet
from tests.support.invariants import violations
from tests.support.virtual import apply_at, definition, finish_jobs, fired, gaps_at, outcomes, tick_at, utc
from tests.support.wait import wait_for

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection
        assert violations(connection) == {}


# catch-up, enqueued while catching up, missed and why
EIGHT_HOURS = [
    ("none", [], {"missed late": 480, "enqueued": 1}),
    ("latest", [utc("2026-03-02 08:01")], {"missed coalesced": 479, "enqueued": 2}),
    ("all", [utc("2026-03-02 00:02") + MINUTE * n for n in range(480)], {"enqueued": 481}),
]


@pytest.mark.parametrize(("catchup", "caught_up", "decided"), EIGHT_HOURS)
def test_mf_01_a_minutely_schedule_goes_on_after_480_missed_starts(
    db: Connection, catchup: str, caught_up: list[datetime], decided: dict[str, int]
) -> None:
    """The grace is shorter than usual, so that the newest of the 480 counts as missed as well."""
    apply_at(db, utc("2026-03-02 00:00:30"), definition("m", "* * * * *", catchup=catchup, grace=timedelta(seconds=20)))
    tick_at(db, utc("2026-03-02 00:01"))
    assert fired(db, "m") == [utc("2026-03-02 00:01")]
    finish_jobs(db)
    tick_at(db, utc("2026-03-02 08:01:40"))
    assert fired(db, "m")[1:] == caught_up
    # Oldest first: one after the other, because the schedule queues its jobs.
    assert finish_jobs(db) == len(caught_up)
    order = db.execute("select logical_date from sched.jobs j order by completed_at, id").fetchall()
    assert [row[0] for row in order] == fired(db, "m")
    assert all(row[1] == "enqueued" or row[2] for row in _ledger(db))
    done = outcomes(db, "m")
    assert (done["missed late"], done["missed coalesced"]) == (
        decided.get("missed late", 0),
        decided.get("missed coalesced", 0),
    )
    assert done["enqueued"] == decided["enqueued"]
    tick_at(db, utc("2026-03-02 08:02"))
    assert fired(db, "m")[-1] == utc("2026-03-02 08:02")
    assert len(fired(db, "m")) == decided["enqueued"] + 1


def test_mf_01_the_one_job_of_latest_covers_what_was_missed(db: Connection) -> None:
    apply_at(db, utc("2026-03-02 00:00:30"), definition("m", "* * * * *", grace=timedelta(seconds=20)))
    tick_at(db, utc("2026-03-02 00:01"))
    tick_at(db, utc("2026-03-02 08:01:40"))
    row = db.execute("select interval_start, covers_from from sched.jobs order by logical_date desc limit 1").fetchone()
    assert row == (utc("2026-03-02 08:00"), utc("2026-03-02 00:01"))


@pytest.mark.parametrize("catchup", ["latest", "all", "none"])
def test_mf_02_editing_the_expression_never_fires_the_past(db: Connection, catchup: str) -> None:
    apply_at(db, utc("2026-03-01 10:00"), definition("daily", "0 12 * * *", catchup=catchup))
    tick_at(db, utc("2026-03-01 12:00"))
    assert fired(db, "daily") == [utc("2026-03-01 12:00")]
    apply_at(db, utc("2026-03-02 10:00"), definition("daily", "0 9 * * *", catchup=catchup))
    tick_at(db, utc("2026-03-02 10:00"))
    assert fired(db, "daily") == [utc("2026-03-01 12:00")]
    assert _planned(db)[0] == utc("2026-03-03 09:00")
    apply_at(db, utc("2026-03-02 10:02"), definition("daily", "*/5 * * * *", catchup=catchup))
    tick_at(db, utc("2026-03-02 10:02"))
    assert fired(db, "daily") == [utc("2026-03-01 12:00")]
    assert _planned(db)[0] == utc("2026-03-02 10:05")
    tick_at(db, utc("2026-03-02 10:05"))
    assert fired(db, "daily") == [utc("2026-03-01 12:00"), utc("2026-03-02 10:05")]


def test_mf_02_catch_up_after_an_edit_covers_the_rule_that_was_in_force(db: Connection) -> None:
    """Nobody ticked since 11:00: its dates until the edit are due, those of the new rule before it never were."""
    apply_at(db, utc("2026-03-02 10:30"), definition("s", "0 * * * *", catchup="all"))
    tick_at(db, utc("2026-03-02 11:00"))
    apply_at(db, utc("2026-03-02 13:50"), definition("s", "*/30 * * * *", catchup="all"))
    tick_at(db, utc("2026-03-02 14:00"))
    assert fired(db, "s") == [
        utc("2026-03-02 11:00"),
        utc("2026-03-02 12:00"),
        utc("2026-03-02 13:00"),
        utc("2026-03-02 14:00"),
    ]


# catch-up, is the pause one that keeps dates, fired at 01:55 after the resume, fired at 02:00
PAUSES = [
    ("none", False, [], [utc("2026-03-02 02:00")]),
    ("latest", False, [], [utc("2026-03-02 02:00")]),
    ("all", False, [], [utc("2026-03-02 02:00")]),
    ("none", True, [], [utc("2026-03-02 02:00")]),
    ("latest", True, [utc("2026-03-02 01:00")], [utc("2026-03-02 01:00"), utc("2026-03-02 02:00")]),
    ("all", True, [utc("2026-03-02 01:00")], [utc("2026-03-02 01:00"), utc("2026-03-02 02:00")]),
]


@pytest.mark.parametrize(("catchup", "keep", "at_resume", "after"), PAUSES)
def test_mf_03_a_pause_is_documented_in_what_it_leaves(
    db: Connection, catchup: str, keep: bool, at_resume: list[datetime], after: list[datetime]
) -> None:
    apply_at(db, utc("2026-03-02 00:30"), definition("hourly", "0 * * * *", catchup=catchup))
    _pause(
        db,
        "hourly",
        utc("2026-03-02 00:55"),
        utc("2026-03-02 01:55"),
        keep,
        [utc("2026-03-02 01:00"), utc("2026-03-02 01:30")],
    )
    assert fired(db, "hourly") == []
    tick_at(db, utc("2026-03-02 01:55"))
    assert fired(db, "hourly") == at_resume
    tick_at(db, utc("2026-03-02 02:00"))
    assert fired(db, "hourly") == after


@pytest.mark.parametrize("keep", [False, True])
def test_mf_03_resuming_after_three_weeks_costs_nothing_with_none(db: Connection, keep: bool) -> None:
    apply_at(db, utc("2026-03-02 00:30"), definition("hourly", "0 * * * *", catchup="none"))
    _pause(db, "hourly", utc("2026-03-02 00:55"), utc("2026-03-23 00:55"), keep, [utc("2026-03-09 12:00")])
    tick_at(db, utc("2026-03-23 00:55"))
    assert fired(db, "hourly") == []
    tick_at(db, utc("2026-03-23 01:00"))
    assert fired(db, "hourly") == [utc("2026-03-23 01:00")]
    assert _undecided_before(db, utc("2026-03-23 01:00")) == 0
    assert sum(outcomes(db, "hourly").values()) >= 21 * 24 + 1


def test_mf_04_moving_start_stops_at_once_and_moving_it_back_floods_nothing(db: Connection) -> None:
    def starting(day: str) -> Definition:
        return definition("nightly", "0 0 * * *", catchup="all", timing={"start": utc(day)})

    apply_at(db, utc("2020-04-30 12:00"), starting("2020-05-01"))
    for day in (1, 2, 3):
        tick_at(db, datetime(2020, 5, day, tzinfo=UTC))
    first_three = [datetime(2020, 5, day, tzinfo=UTC) for day in (1, 2, 3)]
    assert fired(db, "nightly") == first_three
    before = db.execute("select * from sched.jobs order by id").fetchall()

    apply_at(db, utc("2020-05-03 12:00"), starting("2020-10-01"))
    for now in ("2020-05-03 12:00", "2020-05-04 00:00", "2020-07-15 00:00", "2020-09-30 23:59"):
        tick_at(db, utc(now))
        assert fired(db, "nightly") == first_three
    tick_at(db, utc("2020-10-01 00:00"))
    assert fired(db, "nightly") == [*first_three, utc("2020-10-01 00:00")]

    apply_at(db, utc("2020-10-01 12:00"), starting("2020-01-01"))
    tick_at(db, utc("2020-10-01 12:00"))
    assert fired(db, "nightly") == [*first_three, utc("2020-10-01 00:00")]
    tick_at(db, utc("2020-10-02 00:00"))
    assert fired(db, "nightly") == [*first_three, utc("2020-10-01 00:00"), utc("2020-10-02 00:00")]
    assert db.execute("select * from sched.jobs order by id limit 3").fetchall() == before
    # The time before is for backfill: 121 days to the end of April, and 4 May to 30 September.
    gaps = gaps_at(db, utc("2020-10-02 12:00"), utc("2019-12-01 00:00")).gaps
    assert [gap.logical_date for gap in gaps] == [
        *(utc("2020-01-01 00:00") + DAY * n for n in range(121)),
        *(utc("2020-05-04 00:00") + DAY * n for n in range(150)),
    ]
    assert {gap.kind.value for gap in gaps} == {"missing"}


def test_mf_05_two_backfills_at_once_beside_a_ticker_make_one_job_per_date(
    database: str, db: Connection, tmp_path: Path
) -> None:
    folder = write_definitions(
        tmp_path / "schedules",
        '  nightly:\n    cron: "0 0 * * *"\n    start: 2026-01-01\n    overlap: allow\n    job: test.noop\n',
    )
    ours = {"SCHED_DSN": database}

    def backfill() -> Ended:
        return sched_process("backfill", "--since", "2026-01-01", "--json", environment=ours)

    assert sched_process("apply", str(folder), environment=ours).code == 0
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    expected = [utc("2026-01-01 00:00") + DAY * n for n in range((today - utc("2026-01-01 00:00")).days + 1)]
    with fleet(database, tmp_path) as processes, ThreadPoolExecutor(2) as pool:
        processes.start("ticker", "tick")
        ended = [running.result() for running in [pool.submit(backfill) for _ in range(2)]]
        assert [each.code for each in ended] == [0, 0]
        assert sum(each.document["inserted"] for each in ended) == len(expected)
        assert all(each.document["inserted"] + each.document["already"] == len(expected) for each in ended)
        # Finished, running, failed and dead dates are left as they are.
        _end_four_ways(db)
        before = db.execute("select * from sched.jobs order by id").fetchall()
        again = backfill()
        assert (again.code, again.document["inserted"], again.document["already"]) == (0, 0, len(expected))
        processes.stop("ticker")
    assert db.execute("select * from sched.jobs order by id").fetchall() == before
    rows = db.execute("select logical_date from sched.jobs order by 1").fetchall()
    assert [row[0] for row in rows] == expected


# catch-up, how many of the 1,440 dates of two hours are made when the clock jumps over them
JUMPS = [("latest", 1), ("all", 1440), ("none", 0)]


@pytest.mark.parametrize(("catchup", "made"), JUMPS)
def test_mf_06_a_clock_two_hours_ahead_is_handled_by_catch_up_and_makes_nothing_twice(
    db: Connection, catchup: str, made: int
) -> None:
    five = timedelta(seconds=5)
    apply_at(
        db,
        utc("2026-03-02 14:59:58"),
        definition("beat", five, catchup=catchup, grace=timedelta(seconds=2), overlap=OverlapPolicy.ALLOW),
    )
    tick_at(db, utc("2026-03-02 15:00"))
    assert fired(db, "beat") == [utc("2026-03-02 15:00")]
    tick_at(db, utc("2026-03-02 17:00:03"))
    assert len(fired(db, "beat")) == 1 + made
    made_before = fired(db, "beat")
    # The clock goes back. What was decided stays, no date is made a second time, and dates to come fire on time.
    for now in ("2026-03-02 15:01", "2026-03-02 15:02", "2026-03-02 16:59:59"):
        tick_at(db, utc(now))
    assert fired(db, "beat") == made_before
    tick_at(db, utc("2026-03-02 17:00:05"))
    assert fired(db, "beat") == [*made_before, utc("2026-03-02 17:00:05")]
    assert sum(outcomes(db, "beat")[state] for state in ("enqueued", "missed coalesced", "missed late")) == 1442


def test_mf_06_decisions_of_a_clock_that_was_ahead_are_taken_back_by_the_repair(database: str, db: Connection) -> None:
    """Dates that were skipped over while the clock was ahead, and that got no job, are planned again and fire."""
    apply_at(db, utc("2026-03-02 14:59:30"), definition("m", "* * * * *", overlap=OverlapPolicy.ALLOW))
    tick_at(db, utc("2026-03-02 15:00"))
    tick_at(db, utc("2026-03-02 17:00"))
    # Shown to the product as a clock that is back: every decision lies ahead of the database's time.
    ahead = timedelta(days=400)
    db.execute(
        "update sched.occurrences set decided_at = decided_at + %(ahead)s, due_at = due_at + %(ahead)s,"
        " logical_date = logical_date + %(ahead)s where state = 'missed'",
        {"ahead": ahead},
    )
    assert sched_process("doctor", "--repair-clock", environment={"SCHED_DSN": database}).code in (0, 1)
    assert _one(db, "select count(*) from sched.occurrences where state = 'missed'") == (0,)


def test_mf_06_a_glitch_to_2035_inserts_no_years_of_jobs_and_silences_nothing(db: Connection) -> None:
    """A ticker compares the database's clock with its own; the machine's clock is right, so nothing happens."""
    minutely = definition("m", "* * * * *", catchup="all", overlap=OverlapPolicy.ALLOW)
    apply_at(db, utc("2026-03-02 14:59:30"), minutely)
    ticker = Ticker(Planner(), "test", own_clock=lambda: datetime.now(UTC) - timedelta(days=9 * 365))
    before = db.execute("select * from sched.occurrences order by logical_date").fetchall()
    result = ticker.run_once(db)
    assert (result.enqueued, result.skipped, result.missed, result.planned) == (0, 0, 0, 0)
    assert db.execute("select * from sched.occurrences order by logical_date").fetchall() == before
    tick_at(db, utc("2026-03-02 15:00"))
    assert fired(db, "m") == [utc("2026-03-02 15:00")]


def test_mf_07_a_weekly_schedule_fires_although_every_process_lives_a_minute(db: Connection) -> None:
    apply_at(db, utc("2026-03-02 07:00"), definition("weekly", "0 8 * * mon", catchup="none"))
    tick_at(db, utc("2026-03-02 08:00"))
    week = [utc("2026-03-02 08:01") + HOUR * n for n in range(7 * 24 - 2)]
    around = [utc("2026-03-09 07:00") + MINUTE * n for n in range(60)]
    for now in (*week, *around):
        assert tick_at(db, now)["enqueued"] == 0
    # The deploy falls on 08:00: nobody ticks then.
    assert tick_at(db, utc("2026-03-09 08:01"))["enqueued"] == 1
    assert tick_at(db, utc("2026-03-09 08:02"))["enqueued"] == 0
    assert fired(db, "weekly") == [utc("2026-03-02 08:00"), utc("2026-03-09 08:00")]


@pytest.mark.parametrize("catchup", ["latest", "all", "none"])
def test_mf_08_a_new_schedule_does_not_fire_on_arrival(db: Connection, catchup: str) -> None:
    apply_at(db, utc("2026-03-02 07:59:41"), definition("morning", "0 8 * * *", catchup=catchup))
    assert tick_at(db, utc("2026-03-02 07:59:41"))["enqueued"] == 0
    assert tick_at(db, utc("2026-03-02 08:00:05"))["enqueued"] == 1
    assert fired(db, "morning") == [utc("2026-03-02 08:00")]
    report = gaps_at(db, utc("2026-03-02 08:00:05"), utc("2026-01-01 00:00"))
    assert (report.expected, report.settled, report.gaps) == (1, 1, [])


def test_ha_01_eight_ticks_at_the_same_moment_make_one_job_per_date_200_times(
    database: str, server: Cluster, db: Connection
) -> None:
    apply_at(db, utc("2026-03-02 00:00:30"), definition("m", "* * * * *", overlap=OverlapPolicy.ALLOW))
    log = server.directory / "server.log"
    begin = log.stat().st_size
    together = threading.Barrier(8)

    def run(number: int) -> int:
        made = 0
        with connect(database) as own:
            for minute in range(1, 201):
                together.wait(60)
                now = utc("2026-03-02 00:00") + MINUTE * minute
                # Half of them plan as well, as tickers do; the others only fire, as pg_cron does.
                made += tick_at(own, now, f"t{number}")["enqueued"] if number % 2 else fire(own, now)[1]
        return made

    with ThreadPoolExecutor(8) as pool:
        made = [running.result(120) for running in [pool.submit(run, number) for number in range(8)]]
    wait_for(lambda: fire(db, utc("2026-03-02 03:20"))[0] == "idle", 10, "nothing more due")
    assert fired(db, "m") == [utc("2026-03-02 00:01") + MINUTE * n for n in range(200)]
    assert sum(made) <= 200
    text = log.read_bytes()[begin:].decode()
    assert "deadlock detected" not in text
    assert "duplicate key" not in text


def test_ha_01_eight_processes_end_well_and_fire_what_is_due_once(database: str, db: Connection) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    for number in range(20):
        schedule = add_schedule(db, f"s{number}", Policy(catchup="all", overlap="allow"), planned_until=now + DAY)
        plan_date(db, schedule, now - MINUTE)
    with ThreadPoolExecutor(8) as pool:
        running = [
            pool.submit(sched_process, "tick", "--once", "--json", environment={"SCHED_DSN": database})
            for _ in range(8)
        ]
        ended = [each.result() for each in running]
    assert [each.code for each in ended] == [0] * 8, [each.err for each in ended if each.code]
    assert sum(each.document["enqueued"] for each in ended) == 20
    assert _one(db, "select count(distinct schedule_id), count(*) from sched.jobs") == (20, 20)


def test_ha_02_both_passes_of_a_repeated_hour_are_jobs(db: Connection) -> None:
    apply_at(
        db,
        utc("2026-11-01 03:30"),
        definition("hourly", "0 * * * *", timing={"timezone": "America/New_York"}, overlap=OverlapPolicy.ALLOW),
    )
    for now in ("2026-11-01 04:00", "2026-11-01 05:00", "2026-11-01 06:00", "2026-11-01 07:00"):
        tick_at(db, utc(now))
    assert fired(db, "hourly") == [
        utc("2026-11-01 04:00"),
        utc("2026-11-01 05:00"),
        utc("2026-11-01 06:00"),
        utc("2026-11-01 07:00"),
    ]
    assert db.execute(
        "select wall, fold, local_date from sched.occurrences where logical_date between %s and %s"
        " order by logical_date",
        (utc("2026-11-01 05:00"), utc("2026-11-01 06:00")),
    ).fetchall() == [
        (datetime(2026, 11, 1, 1), False, date(2026, 11, 1)),  # noqa: DTZ001
        (datetime(2026, 11, 1, 1), True, date(2026, 11, 1)),  # noqa: DTZ001
    ]
    assert _one(db, "select count(distinct idempotency_key) from sched.jobs") == (4,)


@pytest.mark.parametrize("catchup", ["latest", "all", "none"])
def test_ha_03_a_change_of_process_at_the_due_minute_loses_nothing(db: Connection, catchup: str) -> None:
    apply_at(db, utc("2026-03-01 12:00"), definition("early", "0 4 * * *", catchup=catchup))
    assert tick_at(db, utc("2026-03-02 03:59:10"), "a")["enqueued"] == 0
    assert tick_at(db, utc("2026-03-02 04:01:20"), "b")["enqueued"] == 1
    assert fired(db, "early") == [utc("2026-03-02 04:00")]
    assert _one(db, "select decided_by from sched.occurrences where state = 'enqueued'") == ("b",)


# overlap policy, how many of five triggers within a second make a job
TRIGGERS = [("queue", 5), ("allow", 5), ("skip", 1), ("queue_one", 2)]


@pytest.mark.parametrize(("overlap", "made"), TRIGGERS)
def test_ha_04_five_triggers_within_a_second_are_jobs_or_a_clear_answer(
    database: str, db: Connection, overlap: str, made: int
) -> None:
    apply_at(db, utc("2026-03-02 07:30"), definition("s", "0 8 * * *", overlap=OverlapPolicy(overlap)))
    together = threading.Barrier(5)

    def trigger(_: int) -> str:
        with connect(database) as own:
            together.wait(30)
            outcome, _job = _one(own, "select outcome, job_id from sched.trigger('s', 'test')")
            return str(outcome)

    with ThreadPoolExecutor(5) as pool:
        answers = sorted(pool.map(trigger, range(5)))
    assert answers == ["enqueued"] * made + ["overlap"] * (5 - made)
    assert db.execute("select origin, logical_date from sched.jobs").fetchall() == [("manual", None)] * made
    # A manual run does not occupy the scheduled date.
    finish_jobs(db)
    tick_at(db, utc("2026-03-02 08:00"))
    assert fired(db, "s") == [utc("2026-03-02 08:00")]


def _ledger(db: Connection) -> list[tuple[Any, ...]]:
    return db.execute("select logical_date, state, reason from sched.occurrences where state <> 'planned'").fetchall()


def _planned(db: Connection) -> list[datetime]:
    rows = db.execute("select logical_date from sched.occurrences where state = 'planned' order by 1").fetchall()
    return [row[0] for row in rows]


def _undecided_before(db: Connection, until: datetime) -> int:
    return int(
        _one(db, "select count(*) from sched.occurrences where state = 'planned' and logical_date < %s", until)[0]
    )


def _pause(db: Connection, name: str, begin: datetime, end: datetime, keep: bool, ticks: list[datetime]) -> None:
    """Pause and resume by the real functions, then at the moments of the case; ticks come in between."""
    assert _one(db, "select sched.pause(%s, %s, 'test')", name, keep) == ("paused",)
    db.execute("update sched.pauses set from_at = %s", (begin,))
    for now in ticks:
        tick_at(db, now)
    assert _one(db, "select sched.resume(%s, 'test')", name) == ("resumed",)
    db.execute("update sched.pauses set until_at = %s", (end,))


def _end_four_ways(db: Connection) -> None:
    """Of the queued jobs one is finished, one is dead, one failed and waits, and one is running."""
    finished, dead, failed, _running = db.execute(
        "select id, lease_token from sched.claim(array['default'], gen_random_uuid(), 4, '5 min')"
    ).fetchall()
    db.execute("select sched.complete(array[%s]::bigint[], array[%s]::uuid[], array['1'::jsonb])", finished)
    for row, outcome in ((dead, "discarded"), (failed, "failed")):
        db.execute("select sched.fail(array[%s]::bigint[], array[%s]::uuid[], array[%s], array['x'])", (*row, outcome))


def _one(db: Connection, query: str, *parameters: Any) -> tuple[Any, ...]:
    row = db.execute(query, parameters or None).fetchone()
    assert row is not None
    return tuple(row)

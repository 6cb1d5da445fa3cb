"""Tickers in trouble: eight at once, a database that dies under them, clocks that disagree, long outages.

"The same result" is compared as a whole: every date with its outcome and reason, every job with its place in line,
against one ticker that had no trouble.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.core.models import Definition, OverlapPolicy
from scheduler.services.planner import Planner, PlanResult
from scheduler.services.tick import Ticker, TickResult
from scheduler.storage import firing
from scheduler.storage.database import Connection, Database
from scheduler.storage.migrations import migrate
from tests.support.build import NOON, Policy, add_schedule, fire, plan_date, plan_dates
from tests.support.cluster import Cluster, available_servers
from tests.support.database import cloned_database, connect
from tests.support.invariants import violations
from tests.support.virtual import apply_at, definition, fired, outcomes, tick_at, utc
from tests.support.wait import wait_for

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
OUTAGE = 3 * HOUR
"""How long nobody ticked in the tests with many schedules; each has three dates in it."""


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection
        assert violations(connection) == {}


def due_schedules(count: int, now: datetime) -> list[Definition]:
    """Hourly schedules of every catch-up and overlap policy. No date comes due for half an hour after ``now``."""
    catchups = ("latest", "all", "none")
    overlaps = list(OverlapPolicy)
    return [
        definition(
            f"s{n:04}",
            HOUR,
            anchor=now - HOUR / 2 - timedelta(seconds=n % 60),
            catchup=catchups[n % len(catchups)],
            overlap=overlaps[n % len(overlaps)],
        )
        for n in range(count)
    ]


def everything(db: Connection) -> tuple[list[Any], list[Any]]:
    """All decided dates, and all jobs, without what may differ between two runs: ids, moments, names of processes."""
    dates = db.execute(
        "select s.name, o.logical_date, o.state, o.reason from sched.occurrences o"
        " join sched.schedules s on s.id = o.schedule_id where o.due_at <= clock_timestamp() order by 1, 2"
    ).fetchall()
    jobs = db.execute(
        "select schedule, logical_date, status, covers_from, interval_start, holds_overlap, waiting_for, last_error"
        " from sched.jobs order by 1, 2"
    ).fetchall()
    return dates, jobs


def tick_until_idle(dsn: str, by: str) -> None:
    """What a ticker does until nothing is due: passes and plans."""
    with connect(dsn) as own:
        ticker = Ticker(Planner(by), by)

        def is_idle() -> bool:
            result = ticker.run_once(own)
            return not (result.is_busy or result.enqueued or result.skipped or result.missed or result.planned)

        wait_for(is_idle, 100, "nothing more due")


def test_eight_tickers_at_once_end_as_one_does(server: Cluster, database: str) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with connect(database) as db:
        apply_at(db, now - OUTAGE, *due_schedules(2000, now))
    with cloned_database(server, template=_name(database)) as alone:
        tick_until_idle(alone, "alone")
        together = threading.Barrier(8)

        def run(number: int) -> None:
            together.wait(60)
            tick_until_idle(database, f"t{number}")

        with ThreadPoolExecutor(8) as pool:
            for running in [pool.submit(run, number) for number in range(8)]:
                running.result(110)
        with connect(alone) as one, connect(database) as eight:
            expected, found = everything(one), everything(eight)
            assert violations(eight) == {}
            (deciders,) = _row(eight, "select count(distinct decided_by) from sched.occurrences")
    assert len(expected[0]) == 6000
    assert found == expected
    assert deciders > 1, "one ticker did everything; the test proves nothing"


def test_a_server_that_dies_while_firing_changes_nothing(
    database: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Immediate stops, as a crash; each hits a pass that is under way. The tickers wait it out and go on."""
    monkeypatch.setattr(firing, "PASS_LIMIT", 30)
    now = datetime.now(UTC).replace(microsecond=0)
    schedules = due_schedules(300, now)
    apply_at(db, now - OUTAGE, *schedules)
    tick_until_idle(database, "alone")
    expected = everything(db)
    chance = random.Random(6)
    with Cluster.start(next(iter(available_servers().values())).bin_dir) as cluster:
        with connect(cluster.dsn()) as own:
            migrate(own)
            apply_at(own, now - OUTAGE, *schedules)
        decided = 0
        with running_tickers(cluster.dsn(), 2):
            for _ in range(4):
                decided = _await_pass_after(cluster, decided + chance.randint(1, 60))
                cluster.stop("immediate")
                cluster.restart()
            with connect(cluster.dsn()) as own:
                wait_for(lambda: everything(own) == expected, 60, "the tickers to finish as one without trouble did")
                assert violations(own) == {}
    assert 0 < decided < 900, "the server died before or after the firing, not during it"


def test_an_hour_between_the_clocks_changes_nothing_and_is_said(
    server: Cluster, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with connect(database) as db:
        apply_at(db, now - OUTAGE, *due_schedules(100, now))
    with cloned_database(server, template=_name(database)) as alone:
        tick_until_idle(alone, "alone")
        for apart in (HOUR, -HOUR):
            caplog.clear()
            ticker = Ticker(Planner("off"), "off", own_clock=lambda apart=apart: datetime.now(UTC) + apart)
            with connect(database) as own, caplog.at_level(logging.WARNING):
                ticker.run_once(own)
                ticker.run_once(own)
            warnings = [record for record in caplog.records if getattr(record, "event", "") == "clocks_differ"]
            assert len(warnings) == 1, "once, not at every tick"
            assert 3500 < warnings[0].seconds < 3700  # type: ignore[attr-defined]
        with connect(alone) as one, connect(database) as other:
            assert everything(other) == everything(one)


@pytest.mark.parametrize("apart", [timedelta(hours=25), -timedelta(hours=25), timedelta(days=365)])
def test_a_day_between_the_clocks_and_the_ticker_neither_plans_nor_fires(
    db: Connection, caplog: pytest.LogCaptureFixture, apart: timedelta
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    apply_at(db, now - OUTAGE, *due_schedules(20, now))
    before = db.execute("select * from sched.occurrences order by schedule_id, logical_date").fetchall()
    positions = db.execute("select id, planned_until, plan_at from sched.schedules order by id").fetchall()
    clock = [apart]
    ticker = Ticker(Planner("off"), "off", own_clock=lambda: datetime.now(UTC) + clock[0])
    with caplog.at_level(logging.WARNING):
        assert ticker.run_once(db) == TickResult()
    assert "neither firing nor planning" in caplog.text
    assert db.execute("select * from sched.occurrences order by schedule_id, logical_date").fetchall() == before
    assert db.execute("select id, planned_until, plan_at from sched.schedules order by id").fetchall() == positions
    # The clocks agree again: nothing was lost meanwhile.
    clock[0] = timedelta(0)
    result = ticker.run_once(db)
    assert result.enqueued + result.skipped + result.missed == 60


# catch-up policy, what becomes of 2,880 dates of a minutely schedule in an outage of two days
OUTAGES = [
    ("latest", {"missed coalesced": 2878, "enqueued": 3}),
    ("all", {"enqueued": 2881}),
    ("none", {"missed late": 2878, "enqueued": 3}),
]


@pytest.mark.parametrize(("catchup", "decided"), OUTAGES)
def test_each_date_of_a_two_day_outage_is_decided_by_the_policy(
    db: Connection, catchup: str, decided: dict[str, int]
) -> None:
    """The grace is two minutes, so the last two dates are not late: they fire under every policy."""
    begin = utc("2026-03-02 00:00")
    apply_at(
        db, begin - timedelta(seconds=30), definition("m", "* * * * *", catchup=catchup, overlap=OverlapPolicy.ALLOW)
    )
    tick_at(db, begin)
    tick_at(db, utc("2026-03-04 00:00:30"))
    ledger = outcomes(db, "m")
    del ledger["planned"]
    assert ledger == decided
    tick_at(db, utc("2026-03-04 00:01"))
    assert fired(db, "m")[-1] == utc("2026-03-04 00:01")


def test_a_year_of_outage_is_decided_with_exactly_the_policys_jobs(db: Connection) -> None:
    """Daily schedules of each policy; those of `all` keep dates for longer than a year."""
    begin = utc("2025-03-01 12:00")
    years = timedelta(days=400)
    names = {policy: [f"{policy}-{n}" for n in range(4)] for policy in ("latest", "all", "none")}
    apply_at(
        db,
        begin,
        *(definition(name, "0 6 * * *", catchup="all", max_age=years) for name in names["all"]),
        *(definition(name, "0 6 * * *", catchup="latest", max_age=years) for name in names["latest"]),
        *(definition(name, "0 6 * * *", catchup="none") for name in names["none"]),
    )
    tick_at(db, begin)
    tick_at(db, begin + timedelta(days=365))
    dates = [utc("2025-03-02 06:00") + timedelta(days=n) for n in range(365)]
    for name in names["all"]:
        assert fired(db, name) == dates
    for name in names["latest"]:
        assert fired(db, name) == dates[-1:]
        assert outcomes(db, name) == {"missed coalesced": 364, "enqueued": 1, "planned": 2}
    for name in names["none"]:
        assert fired(db, name) == []
        assert outcomes(db, name) == {"missed late": 7, "missed too_old": 358, "planned": 2}
    covers = db.execute("select distinct covers_from from sched.jobs where schedule like 'latest%'").fetchall()
    assert covers == [(utc("2025-03-01 06:00"),)]


@pytest.mark.parametrize("catchup", ["latest", "all", "none"])
def test_a_database_clock_a_year_ahead_makes_no_date_twice_when_it_is_back(db: Connection, catchup: str) -> None:
    begin = utc("2026-03-02 00:00")
    apply_at(
        db,
        begin - HOUR,
        definition("daily", "0 6 * * *", catchup=catchup),
        definition("m", "* * * * *", catchup=catchup),
    )
    tick_at(db, begin)
    ahead = begin + timedelta(days=365)
    db.execute("select * from sched.fire(%s)", (ahead,))
    jobs = db.execute("select * from sched.jobs order by id").fetchall()
    for minute in range(1, 30):
        tick_at(db, begin + minute * MINUTE)
    assert db.execute("select * from sched.jobs order by id").fetchall()[: len(jobs)] == jobs
    # What the glitch did not decide fires on time: the horizon was ten minutes, and is only that much lost at most.
    assert [date for date in fired(db, "m") if date >= begin + 12 * MINUTE] == [
        begin + minute * MINUTE for minute in range(12, 30)
    ]
    per_date = Counter(row[0] for row in db.execute("select logical_date from sched.jobs where schedule = 'm'"))
    assert set(per_date.values()) == {1}


@pytest.mark.parametrize("catchup", ["latest", "all", "none"])
@pytest.mark.parametrize(("ahead", "step"), [(2 * HOUR, MINUTE), (timedelta(days=365), HOUR)])
def test_after_the_repair_of_a_clock_that_was_ahead_nothing_is_silenced_and_nothing_lost(
    db: Connection, ahead: timedelta, step: timedelta, catchup: str
) -> None:
    """A whole tick, firing and planning, under the wrong clock: nobody compared it with another one."""
    begin = datetime.now(UTC).replace(second=0, microsecond=0)
    schedule = definition("s", step, catchup=catchup, anchor=begin, overlap=OverlapPolicy.ALLOW)
    apply_at(db, begin - HOUR / 2, schedule)
    tick_at(db, begin)
    tick_at(db, begin + ahead)
    wait_for(lambda: _row(db, "select dates from sched.repair_clock('test')")[0] == 0, 60, "nothing more to repair")
    moments = [begin + n * step for n in range(1, 200)]
    for now in moments:
        tick_at(db, now)
    dates = fired(db, "s")
    assert len(dates) == len(set(dates)), "a date was made twice"
    # The minutes that passed on the real clock since ``begin`` may have been late when the repair looked.
    assert set(dates) >= set(moments[3:])
    undecided = "select count(*) from sched.occurrences where state = 'planned' and due_at <= %s"
    assert _row(db, undecided, moments[-1]) == (0,)


class SlowPlanner:
    """Nothing to plan, and half a second to find that out."""

    def run_once(self, connection: Connection) -> PlanResult:
        connection.execute("select pg_sleep(0.5)")
        return PlanResult()


def test_a_slow_tick_sleeps_less_so_that_the_next_date_is_not_late(db: Connection) -> None:
    schedule = add_schedule(db)
    due_at = datetime.now(UTC) + timedelta(seconds=0.9)
    plan_date(db, schedule, due_at)
    result = Ticker(SlowPlanner(), "test").run_once(db)
    woken_at = datetime.now(UTC) + result.sleep
    assert timedelta(0) <= woken_at - due_at < timedelta(seconds=0.4)


@pytest.mark.parametrize(
    ("catchup", "schedules"),
    [("all", 1), ("latest", 1), ("none", 1), ("all", 50)],
)
def test_a_pass_after_an_outage_reads_a_few_rows_for_each_date(server: Cluster, catchup: str, schedules: int) -> None:
    """Statistics are those of an empty table, as after an outage. A plan without the key read 12 million rows."""
    dates = 4000 // schedules
    with cloned_database(server) as fresh, connect(fresh) as db:
        for number in range(schedules):
            schedule = add_schedule(db, f"s{number}", Policy(catchup=catchup, overlap="allow"))
            plan_dates(db, schedule, NOON - dates * MINUTE, dates)
        with db.transaction():
            outcome, enqueued, skipped, missed = fire(db, NOON + HOUR)[:4]
            (read,) = _row(
                db,
                "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
                " where schemaname = 'sched' and relname = 'occurrences'",
            )
    assert (outcome, enqueued + skipped + missed) == ("fired", 4000)
    assert read <= 10 * 4000


def test_a_pass_after_an_outage_costs_the_same_whatever_the_statistics_say(server: Cluster) -> None:
    """A join of the batch with itself took 5 s of work for what takes 0.3 s; wall time would depend on the machine."""
    now = datetime.now(UTC)
    schedules = [
        definition(f"m-{policy}", "* * * * *", catchup=policy, overlap=OverlapPolicy.ALLOW)
        for policy in ("latest", "all", "none")
    ]
    costs: dict[bool, list[float]] = {False: [], True: []}
    for is_analyzed, passes in costs.items():
        with cloned_database(server) as fresh, connect(fresh) as db:
            apply_at(db, now - timedelta(days=3), *schedules)
            planner = Planner()
            decided = 0
            while planner.run_once(db, now).schedules:
                if is_analyzed:
                    db.execute("analyze")
                before = _processor_seconds(db)
                decided += sum(fire(db, now)[1:4])
                passes.append(_processor_seconds(db) - before)
            assert decided == 3 * 3 * 1440
    for unknown, known in zip(costs[False], costs[True], strict=True):
        assert unknown < 0.3 + 3 * known, costs


def _processor_seconds(db: Connection) -> float:
    """What the server's process for this connection has used so far; it runs on this machine."""
    stat = Path(f"/proc/{db.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_tickers(dsn: str, count: int) -> Iterator[None]:
    """Tickers in threads of this process, which wait out whatever happens to their connections."""
    stop = threading.Event()
    tickers = [Ticker(Planner(f"t{n}"), f"t{n}") for n in range(count)]
    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(ticker.run, Database(dsn), stop) for ticker in tickers]
        try:
            yield
        finally:
            stop.set()
            for each in running:
                each.result(60)


def _await_pass_after(cluster: Cluster, decided: int) -> int:
    """Wait until that many dates are decided and a pass is under way; returns how many are decided then."""
    with connect(cluster.dsn()) as own:

        def is_firing() -> int:
            count, active = _row(
                own,
                "select (select count(*) from sched.occurrences where state <> 'planned'),"
                " (select count(*) from pg_stat_activity where state <> 'idle' and query like '%sched.fire%'"
                "  and pid <> pg_backend_pid())",
            )
            return int(count) if count >= decided and active else 0

        return wait_for(is_firing, 60, "a pass to be under way")


def _row(db: Connection, query: str, *parameters: Any) -> tuple[Any, ...]:
    row = db.execute(query, parameters or None).fetchone()
    assert row is not None
    return tuple(row)


def _name(dsn: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    return str(conninfo_to_dict(dsn)["dbname"])

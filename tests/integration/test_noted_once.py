"""What somebody should look at is an event, once: dates that are overdue, jobs that died, horizons that ended; with one
ticker and its reaper, and with two at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.services.reaper import reap_once
from scheduler.services.tick import Ticker
from scheduler.storage.database import Connection
from tests.support.build import Policy, add_schedule, claim_all, plan_date
from tests.support.database import connect

HOUR = timedelta(hours=1)
ROUNDS = 5


class NobodyPlans:
    """The planner of a process that must not plan."""

    schedules = dates = 0

    def run_once(self, connection: Connection) -> NobodyPlans:
        return self


def tick_and_reap(database: str, tickers: int) -> None:
    """So many tickers with their reapers, each several times, all beginning at once; the watchdog looks every time."""
    together = threading.Barrier(tickers)

    def run(number: int) -> None:
        ticker = Ticker(NobodyPlans(), by=f"ticker {number}")
        with connect(database) as own:
            for _ in range(ROUNDS):
                together.wait(30)
                ticker.run_once(own)
                own.execute("update sched.state set last_watch_at = null")
                reap_once(own, f"reaper {number}")

    with ThreadPoolExecutor(tickers) as pool:
        list(pool.map(run, range(tickers)))


def overdue(db: Connection) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    schedule = add_schedule(db, "late", planned_until=now + HOUR)
    db.execute("update sched.schedule_revisions set finish_by = '10 minutes'")
    plan_date(db, schedule, now - HOUR)


def dead(db: Connection) -> None:
    db.execute("select sched.enqueue('x', p_max_attempts => 1)")
    claim_all(db)
    db.execute("update sched.jobs set lease_expires_at = clock_timestamp()")


def horizon_ended(db: Connection) -> None:
    at = datetime.now(UTC) - HOUR
    add_schedule(db, "short", Policy(), planned_until=at)
    db.execute("update sched.schedules set plan_at = %s", (at,))
    db.execute("update sched.state set last_pass_at = clock_timestamp() - interval '1 minute'")


@pytest.mark.parametrize("tickers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "happens"), [("overdue", overdue), ("job_dead", dead), ("horizon_ended", horizon_ended)]
)
def test_it_is_noted_once(
    database: str, db: Connection, kind: str, happens: Callable[[Connection], None], tickers: int
) -> None:
    happens(db)
    tick_and_reap(database, tickers)
    assert db.execute("select kind from sched.events where kind = %s", (kind,)).fetchall() == [(kind,)]


def test_an_overdue_date_is_noted_before_it_has_a_job_and_not_again_when_it_has(database: str, db: Connection) -> None:
    overdue(db)
    reap_once(db)
    assert db.execute("select logical_date is not null, job_id from sched.events").fetchall() == [(True, None)]
    tick_and_reap(database, 1)
    assert db.execute("select count(*) from sched.jobs").fetchone() == (1,)
    assert db.execute("select count(*) from sched.events where kind = 'overdue'").fetchone() == (1,)


def test_a_horizon_reached_while_nobody_fired_has_not_ended(database: str, db: Connection) -> None:
    """After an outage of the whole database planners get their turn before anything is said."""
    horizon_ended(db)
    db.execute("update sched.state set last_pass_at = clock_timestamp() - interval '2 hours'")
    with connect(database) as own:
        Ticker(NobodyPlans(), by="first").run_once(own)
    assert db.execute("select count(*) from sched.events where kind = 'horizon_ended'").fetchone() == (0,)


def test_a_horizon_that_was_extended_and_ended_again_is_noted_again(database: str, db: Connection) -> None:
    horizon_ended(db)
    tick_and_reap(database, 1)
    db.execute("update sched.schedules set planned_until = planned_until + interval '30 minutes'")
    tick_and_reap(database, 2)
    assert db.execute("select count(*) from sched.events where kind = 'horizon_ended'").fetchone() == (2,)


def test_the_watchdog_does_not_wait_for_a_pass_that_has_the_state_row(
    database: str, db: Connection, other: Connection
) -> None:
    """A pass keeps it from a slow look at what is due until its end, and may wait for keys that the reaper has."""
    overdue(db)
    other.execute("set lock_timeout = '5 s'")
    with connect(database, autocommit=False) as passing:
        passing.execute("select from sched.state for update")
        assert other.execute("select sched.watch()").fetchone() == (0,)
    assert other.execute("select sched.watch()").fetchone() == (1,)

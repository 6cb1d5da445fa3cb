"""Two tickers and two workers, killed again and again for a minute: every second is made once and its work counts once.

The processes are real and end by SIGKILL only; each is started again at once. ``pytest -s`` prints what each kill cost.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.storage.database import Connection, database_now
from tests.acceptance.effects import TABLES
from tests.support.cli import sched, write_definitions
from tests.support.database import connect
from tests.support.fleet import Fleet, fleet
from tests.support.invariants import violations
from tests.support.wait import wait_for

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

SEED = 2
DURATION_SECONDS = 60.0
ROUNDS = 24
LEASE = timedelta(seconds=3)
TICKERS = ("ticker-1", "ticker-2")
WORKERS = ("worker-1", "worker-2")
DEFINITION = """\
  beat:
    every: 1s
    catchup: {policy: all}
    job: test.effect
    retry: {max_attempts: 50, base: 1s, max: 1s}
"""


@dataclass(frozen=True, slots=True)
class Kill:
    """Who was killed when, by the database's clock, and whether a worker held a running job."""

    victims: tuple[str, ...]
    at: datetime
    was_holding: bool


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        connection.execute(TABLES)
        yield connection


def test_a_minute_of_kills_loses_no_second_and_makes_none_twice(database: str, db: Connection, tmp_path: Path) -> None:
    folder = write_definitions(tmp_path / "schedules", DEFINITION)
    assert sched("apply", str(folder), "--dsn", database).code == 0
    with fleet(database, tmp_path) as processes:
        for name in TICKERS:
            processes.start(name, "tick")
        for name in WORKERS:
            processes.start(name, "worker", "--app", "tests.acceptance.effects", "--lease", "3s", "-c", "2")
        wait_for(lambda: is_calm(db), 60, "all four to be at work")
        calm_until = database_now(db)
        kills = kill_for_a_minute(processes, db)
        until = database_now(db)
        wait_for(lambda: succeeded(db, until) >= len(expected(db, until)), 60, "every second to succeed")
        processes.stop(*TICKERS)
        wait_for(lambda: unfinished(db) == 0, 60, "what is queued to be worked off")
        processes.stop(*WORKERS)

    signals = sum(len(kill.victims) for kill in kills)
    report(db, kills, calm_until)
    assert signals >= 30
    assert any(kill.victims == TICKERS for kill in kills)
    assert sum(kill.was_holding for kill in kills) >= 3, "too few workers were killed while they held a job"
    assert enqueued(db, until) == expected(db, until)
    assert succeeded(db, until) == len(expected(db, until))
    assert one(db, "select array_agg(distinct state) from sched.occurrences where state <> 'planned'") == ["enqueued"]
    assert one(db, "select array_agg(distinct status) from sched.jobs") == ["succeeded"]
    # Each effect was committed with the completion of its job: once, however often the work was begun.
    jobs = count(db, "select count(*) from sched.jobs")
    assert count(db, "select count(*) from public.effects") == jobs
    assert count(db, "select count(distinct logical_date) from public.effects") == jobs
    assert count(db, "select count(distinct key) from sched.job_results") == jobs
    assert count(db, "select count(*) from sched.job_results") == jobs
    assert count(db, "select count(*) from sched.attempts where outcome = 'succeeded'") == jobs
    assert violations(db) == {}


def is_calm(db: Connection) -> bool:
    """Whether the first effects are there and the last seconds were made on time."""
    late = db.execute(
        "select extract(epoch from created_at - logical_date) from sched.jobs order by logical_date desc limit 3"
    ).fetchall()
    workers = count(db, "select count(*) from sched.workers")
    return workers == len(WORKERS) and len(late) == 3 and max(late)[0] < 1


def kill_for_a_minute(processes: Fleet, db: Connection) -> list[Kill]:
    """Kill somebody every other second and start them again at once; all choices come from the seed."""
    chance = random.Random(SEED)
    turns = [TICKERS, WORKERS[:1], WORKERS[1:], TICKERS[:1], WORKERS, TICKERS[1:]]
    begin = time.monotonic()
    kills: list[Kill] = []
    for turn in range(ROUNDS):
        victims = turns[turn % len(turns)]
        at = begin + (turn + chance.random()) * DURATION_SECONDS / ROUNDS
        wait_for(lambda at=at: time.monotonic() >= at, DURATION_SECONDS, "the moment of the next kill")
        was_holding = await_a_held_job(processes, db, victims) if victims[0] in WORKERS else False
        kills.append(Kill(victims=victims, at=database_now(db), was_holding=was_holding))
        processes.kill(*victims)
        processes.restart(*victims)
    wait_for(lambda: time.monotonic() >= begin + DURATION_SECONDS, DURATION_SECONDS, "the minute to be over")
    return kills


def await_a_held_job(processes: Fleet, db: Connection, victims: tuple[str, ...]) -> bool:
    """Whether one of these workers holds a running job; looks for a while."""
    endings = tuple(f"%-{processes.pid(name)}" for name in victims)
    patience = time.monotonic() + 1.5
    while True:
        held = count(
            db,
            "select count(*) from sched.jobs j join sched.workers w on w.id = j.lease_owner"
            " where j.status = 'running' and w.name like any (%s)",
            list(endings),
        )
        if held or time.monotonic() > patience:
            return bool(held)


def expected(db: Connection, until: datetime) -> list[datetime]:
    """Every whole second after the apply, up to ``until``."""
    applied_at = one(db, "select applied_at from sched.schedules")
    first = applied_at.replace(microsecond=0) + timedelta(seconds=1)
    return [first + timedelta(seconds=n) for n in range(int((until - first).total_seconds()) + 1)]


def enqueued(db: Connection, until: datetime) -> list[datetime]:
    rows = db.execute("select logical_date from sched.jobs where logical_date <= %s order by 1", (until,)).fetchall()
    return [row[0] for row in rows]


def succeeded(db: Connection, until: datetime) -> int:
    return count(db, "select count(*) from sched.jobs where status = 'succeeded' and logical_date <= %s", until)


def unfinished(db: Connection) -> int:
    return count(db, "select count(*) from sched.jobs where completed_at is null")


def report(db: Connection, kills: list[Kill], calm_until: datetime) -> None:
    """Print what each kill cost: by how much the seconds until the next one were made, and done, later than in calm."""
    rows = db.execute(
        """
        select logical_date, extract(epoch from created_at - logical_date)::float8,
               extract(epoch from completed_at - logical_date)::float8
        from sched.jobs order by 1
        """
    ).fetchall()
    calm = [row for row in rows if row[0] < calm_until][-3:]
    calm_made, calm_done = (statistics.median(row[n] for row in calm) for n in (1, 2))
    print(
        f"\nseed {SEED}, lease {LEASE.total_seconds():g} s; without kills a date is made {calm_made * 1000:.0f} ms "
        f"after its second and done after {calm_done * 1000:.0f} ms"
    )
    for kill, following in zip(kills, [*kills[1:], None], strict=True):
        end = max(following.at if following else kill.at, kill.at + timedelta(seconds=1))
        near = [row for row in rows if kill.at - timedelta(seconds=1) < row[0] <= end]
        made, done = (max((row[n] for row in near), default=0.0) for n in (1, 2))
        note = " holding a job" if kill.was_holding else ""
        print(
            f"  {kill.at:%H:%M:%S.%f} kill -9 {' + '.join(kill.victims) + note:<38} added lateness: "
            f"made {max(0.0, made - calm_made) * 1000:6.0f} ms, done {max(0.0, done - calm_done) * 1000:6.0f} ms"
        )
    lost = count(db, "select count(*) from sched.attempts where outcome = 'lost'")
    starts = count(db, "select count(*) from public.starts")
    print(
        f"  {sum(len(kill.victims) for kill in kills)} processes killed, {len(rows)} jobs, {starts} starts, {lost} "
        f"leases lost, greatest lateness {max(row[1] for row in rows) * 1000:.0f} ms"
    )


def count(db: Connection, query: str, *parameters: Any) -> int:
    return int(one(db, query, *parameters))


def one(db: Connection, query: str, *parameters: Any) -> Any:
    row = db.execute(query, parameters or None).fetchone()
    assert row is not None
    return row[0]

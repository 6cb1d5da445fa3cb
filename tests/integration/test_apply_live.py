"""Applying beside running tickers, on the real clock: a change is seen at once, and no date is lost or made twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

from scheduler.core.ledger.history import expected_between
from scheduler.core.models import Catchup, CatchupPolicy, Cron, Definition, DefinitionSet, Every, OverlapPolicy, Timing
from scheduler.services.apply import apply_definitions
from scheduler.services.planner import Planner
from scheduler.services.tick import POLL, Ticker
from scheduler.storage.database import Connection, Database, database_now
from scheduler.storage.schedules import DefinitionCache, histories
from tests.support.database import connect
from tests.support.invariants import violations
from tests.support.wait import wait_for

SECOND = timedelta(seconds=1)
ROUNDS = 6


@contextmanager
def tickers(database: str, count: int) -> Iterator[None]:
    """Running tickers, each in a thread with a connection of its own, as ``sched tick`` runs one."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=Ticker(Planner(), f"tick {n}").run, args=(Database(database), stop))
        for n in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def every(name: str, interval: timedelta) -> Definition:
    return Definition(
        name=name,
        owner="team",
        timing=Timing(name=name, rule=Every(interval=interval)),
        job_type="x",
        catchup=Catchup(policy=CatchupPolicy.ALL),
        overlap=OverlapPolicy.ALLOW,
    )


def files(*definitions: Definition) -> DefinitionSet:
    return DefinitionSet(schedules={each.name: each for each in definitions}, limits={}, owners=frozenset({"team"}))


def test_a_running_ticker_sees_a_change_within_its_poll_of_a_second(database: str, db: Connection) -> None:
    """It sleeps because nothing is due for months; then a date is, a second after the apply, and is decided in time."""
    yearly = Definition(
        name="s", owner="team", timing=Timing(name="s", rule=Cron(expression="0 0 1 1 *")), job_type="x"
    )
    apply_definitions(db, files(yearly), actor="test")
    with tickers(database, 1):
        wait_for(
            lambda: db.execute("select 1 from sched.state where last_pass_at is not null").fetchone(),
            30,
            "the ticker to have looked once",
        )
        applied = apply_definitions(db, files(every("s", SECOND)), actor="test")
        row = wait_for(
            lambda: db.execute(
                "select due_at, decided_at from sched.occurrences where revision = 2 and state = 'enqueued'"
                " order by logical_date limit 1"
            ).fetchone(),
            60,
            "a date of the new rule to be decided",
        )
    assert row is not None and applied.applied_at is not None
    assert POLL <= SECOND
    print(f"\napplied, due after {row[0] - applied.applied_at}, decided {row[1] - row[0]} later")
    assert row[0] - applied.applied_at <= SECOND


def test_eight_applies_at_once_beside_two_tickers_lose_and_double_no_date(database: str, db: Connection) -> None:
    """Eight deploys of the same repository, changed between rounds, while dates fall due every second."""
    names = [f"s{number}" for number in range(5)]
    apply_definitions(db, files(*(every(name, SECOND) for name in names)), actor="test")

    def run(wanted: DefinitionSet) -> int:
        with connect(database) as own:
            return len(apply_definitions(own, wanted, actor="test").changes)

    with tickers(database, 2), ThreadPoolExecutor(8) as pool:
        for number in range(ROUNDS):
            wanted = files(*(every(name, (2 + (index + number) % 3) * SECOND) for index, name in enumerate(names)))
            made = list(pool.map(run, [wanted] * 8))
            assert sum(made) == len(names), "each change is made by one of the eight"
            wait_for(
                lambda: db.execute(
                    "select 1 from sched.schedules s join sched.occurrences o on o.schedule_id = s.id"
                    " and o.revision = s.revision and o.state = 'enqueued' limit 1"
                ).fetchone(),
                60,
                "a date of the new rules to be decided",
            )
        ended_at = database_now(db)
        wait_for(
            lambda: db.execute(
                "select 1 where not exists (select from sched.occurrences where state = 'planned' and due_at <= %s)"
                " and not exists (select from sched.schedules where planned_until < %s)",
                (ended_at, ended_at),
            ).fetchone(),
            60,
            "every date up to the end to be decided",
        )
    rows = db.execute(
        "select schedule_id, logical_date, state from sched.occurrences where logical_date <= %s order by 1, 2",
        (ended_at,),
    ).fetchall()
    past = histories(db, [row[0] for row in db.execute("select id from sched.schedules")], DefinitionCache())
    assert len(past) == len(names)
    for schedule_id, history in past.items():
        borders = [(span.valid_from, span.valid_until) for span in history.spans]
        assert len(borders) == ROUNDS + 1
        assert [until for _, until in borders] == [*(since for since, _ in borders[1:]), None]
        expected = [date.occurrence.logical_date for date in expected_between(history, history.applied_at, ended_at)]
        assert [row[1] for row in rows if row[0] == schedule_id] == expected
    assert {row[2] for row in rows} == {"enqueued"}
    jobs = db.execute("select schedule_id, logical_date from sched.jobs order by 1, 2").fetchall()
    assert len(set(jobs)) == len(jobs)
    assert violations(db) == {}
    print(f"\n{ROUNDS} rounds of eight applies: {len(rows)} dates, each decided once")

"""The virtual clock runs the real planner and the real ``sched.fire``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.core.models import Catchup, CatchupPolicy, Cron, Definition, DefinitionSet, OverlapPolicy, Timing
from scheduler.services.apply import apply_definitions
from scheduler.services.planner import Planner
from scheduler.services.simulate import SimulationRequest, SimulationResult, simulate
from scheduler.storage.database import Connection
from tests.support.database import connect

SINCE = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def run(db: Connection, *definitions: Definition, **request: object) -> SimulationResult:
    wanted = DefinitionSet(schedules={each.name: each for each in definitions}, limits={}, owners=frozenset({"team"}))
    apply_definitions(db, wanted, actor="t", now=SINCE)
    return simulate(db, SimulationRequest(since=SINCE, **request), Planner("test").run_once)  # type: ignore[arg-type]


def schedule(cron: str, name: str = "s", timezone: str = "UTC", **changes: object) -> Definition:
    timing = Timing(name=name, rule=Cron(expression=cron), timezone=timezone)
    return Definition(name=name, owner="team", timing=timing, job_type="x", **changes)  # type: ignore[arg-type]


def told(result: SimulationResult) -> list[str]:
    return [
        f"{each.date.logical_date:%H:%M} {each.date.state} {each.date.reason or ''}".strip() for each in result.runs
    ]


def test_dates_run_at_their_time_over_a_change_of_the_clock(db: Connection) -> None:
    result = run(db, schedule("30 2 * * *", timezone="Europe/Berlin"), until=SINCE + 30 * HOUR)
    assert [(each.date.logical_date, each.started_at) for each in result.runs] == [
        (datetime(2026, 3, 29, 1, 0, tzinfo=UTC), datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),
        (datetime(2026, 3, 30, 0, 30, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)),
    ]


@pytest.mark.parametrize(
    ("policy", "outcomes"),
    [
        (
            CatchupPolicy.LATEST,
            ["22:15 enqueued", "22:30 missed coalesced", "22:45 missed coalesced", "23:00 enqueued"],
        ),
        (CatchupPolicy.ALL, ["22:15 enqueued", "22:30 enqueued", "22:45 enqueued", "23:00 enqueued"]),
        (CatchupPolicy.NONE, ["22:15 enqueued", "22:30 missed late", "22:45 missed late", "23:00 missed late"]),
    ],
)
def test_an_outage_is_decided_by_catchup(db: Connection, policy: CatchupPolicy, outcomes: list[str]) -> None:
    result = run(
        db,
        schedule("*/15 * * * *", catchup=Catchup(policy=policy)),
        until=SINCE + HOUR + 10 * MINUTE,
        outages=[(SINCE + 20 * MINUTE, SINCE + HOUR + 5 * MINUTE)],
    )
    assert told(result) == outcomes


def test_overlap_is_seen_when_jobs_take_longer_than_their_interval(db: Connection) -> None:
    result = run(
        db,
        schedule("*/10 * * * *", overlap=OverlapPolicy.SKIP),
        until=SINCE + HOUR,
        duration=15 * MINUTE,
    )
    assert told(result) == [
        "22:10 enqueued",
        "22:20 skipped overlap",
        "22:30 enqueued",
        "22:40 skipped overlap",
        "22:50 enqueued",
    ]
    assert result.outcomes == {"enqueued": 3, "skipped (overlap)": 2}


def test_queued_jobs_wait_for_their_slot_on_the_virtual_clock(db: Connection) -> None:
    result = run(db, schedule("*/10 * * * *"), until=SINCE + HOUR, duration=15 * MINUTE)
    assert [each.wait for each in result.runs if each.wait is not None] == [
        timedelta(0),
        timedelta(minutes=5),
        timedelta(minutes=10),
        timedelta(minutes=15),
    ]


def test_the_busiest_minutes_are_counted(db: Connection) -> None:
    result = run(
        db, *(schedule("0 * * * *", f"s{n}") for n in range(5)), schedule("30 * * * *"), until=SINCE + 2 * HOUR
    )
    assert result.busiest[0] == (SINCE + HOUR, 5)
    assert result.most_at_once == 5


def test_the_same_simulation_twice_gives_the_same(db: Connection, empty_database: str) -> None:
    from scheduler.storage.migrations import migrate

    request = {"until": SINCE + 3 * HOUR, "duration": 7 * MINUTE}
    definitions = [schedule("*/5 * * * *"), schedule("*/7 * * * *", "t", overlap=OverlapPolicy.QUEUE_ONE)]
    first = run(db, *definitions, **request)
    with connect(empty_database) as other:
        migrate(other)
        assert told(run(other, *definitions, **request)) == told(first)

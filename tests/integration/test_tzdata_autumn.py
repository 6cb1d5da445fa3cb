"""TZ-09, instant by instant: two releases of the tz database disagree over America/Vancouver in autumn 2026.

Release 2025b puts the clock back on 1 November at 09:00Z; release 2026f leaves it on summer time for good. A host that
plans far ahead has planned with the old one; the new one takes over at one of these moments. Whatever the moment,
every local day has its date once, and every hour its job.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from scheduler.core.models import (
    Catchup,
    CatchupPolicy,
    Cron,
    Definition,
    DefinitionSet,
    DstRule,
    OverlapPolicy,
    RepeatRule,
    Timing,
)
from scheduler.core.time.localtime import tz_version
from scheduler.services.apply import apply_definitions
from scheduler.storage.database import Connection
from tests.support.build import fire
from tests.support.database import connect
from tests.support.invariants import violations
from tests.support.old_tzdata import plan_with_old_tzdata
from tests.support.virtual import tick_at, utc

pytestmark = pytest.mark.skipif(tz_version() < "2026f", reason="the newer release is not installed")

BEGIN, END = utc("2026-10-31 04:00"), utc("2026-11-03 18:00")
BEAT = timedelta(minutes=30)
DAILY = {
    "morning": ("0 9 * * *", DstRule(), "09:00"),
    "in-the-hour": ("30 1 * * *", DstRule(), "01:30"),
    "in-the-last-hour": ("30 1 * * *", DstRule(overlap=RepeatRule.LAST), "01:30"),
}
DAYS = ("10-31", "11-01", "11-02", "11-03")


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection
        assert violations(connection) == {}


def vancouver(name: str, cron: str, dst: DstRule) -> Definition:
    return Definition(
        name=name,
        owner="team",
        timing=Timing(name=name, rule=Cron(expression=cron), timezone="America/Vancouver", dst=dst),
        job_type="x",
        catchup=Catchup(policy=CatchupPolicy.ALL, grace=timedelta(hours=2)),
        overlap=OverlapPolicy.ALLOW,
    )


def planned_with_the_old_release(database: str, db: Connection) -> None:
    """Four schedules as a process with release 2025b applied them and planned for 400 days."""
    schedules = {name: vancouver(name, cron, dst) for name, (cron, dst, _) in DAILY.items()}
    schedules["hourly"] = vancouver("hourly", "0 * * * *", DstRule())
    wanted = DefinitionSet(schedules=schedules, limits={}, owners=frozenset({"team"}))
    apply_definitions(db, wanted, actor="test", now=BEGIN)
    db.execute("delete from sched.occurrences")
    db.execute("update sched.schedules set planned_until = %(at)s, plan_at = %(at)s, tzdata = '2025b'", {"at": BEGIN})
    db.execute("update sched.state set tzdata = '2025b', host = 'pg_cron'")
    assert "2025b" in plan_with_old_tzdata(database, BEGIN)


def beats(since: datetime, until: datetime) -> Iterator[datetime]:
    now = since
    while now < until:
        yield now
        now += BEAT


def walls(db: Connection, name: str) -> list[str]:
    rows = db.execute(
        "select to_char(o.wall, 'MM-DD HH24:MI') from sched.occurrences o"
        " join sched.schedules s on s.id = o.schedule_id"
        " where s.name = %s and o.state = 'enqueued' order by o.logical_date",
        (name,),
    ).fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    "taken_over_at",
    [
        "2026-11-01 08:15",
        "2026-11-01 08:45",
        "2026-11-01 09:15",
        "2026-11-01 16:15",
        "2026-11-02 08:45",
        "2026-11-02 16:15",
    ],
)
def test_tz_09_a_newer_release_that_takes_over_at_any_moment_loses_no_day_and_doubles_none(
    database: str, db: Connection, taken_over_at: str
) -> None:
    planned_with_the_old_release(database, db)
    moment = utc(taken_over_at)
    for now in beats(BEGIN, moment):
        fire(db, now)
    for now in [moment, *(now for now in beats(BEGIN, END + BEAT) if now > moment)]:
        tick_at(db, now)

    for name, (_, _, time) in DAILY.items():
        assert walls(db, name) == [f"{day} {time}" for day in DAYS], name
    hours = db.execute("select logical_date from sched.jobs where schedule = 'hourly' order by 1").fetchall()
    assert [row[0] for row in hours] == [BEGIN + timedelta(hours=n) for n in range(1, 87)]
    assert hours[-1][0] == END
    assert db.execute("select count(*) from sched.occurrences where state = 'missed'").fetchone() == (0,)

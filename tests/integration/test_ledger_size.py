"""The ledger of a schedule that runs every minute keeps its size, table and indexes, for as long as it is pruned.

Days pass on a virtual clock: dates are planned, fired and pruned as the services do it, and autovacuum is played by a
vacuum each day; the real one comes more often, after one row in a hundred has changed.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pytest

from scheduler.services.retention import BATCH
from scheduler.storage.database import Connection
from tests.support.build import MINUTE, NOON, Policy, add_schedule, fire

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTES = 1_440
KEPT_DAYS = 35
DAYS = int(os.environ.get("SCHED_TEST_LEDGER_DAYS", "40"))
MOST_BYTES = 10_000_000


def plan_hour(db: Connection, schedule: int, begin: datetime, rule: str) -> None:
    """A date a minute, as a rule in elapsed time (`every`) or in local time (`cron`) plans it."""
    db.execute(
        """
        insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date, wall)
        select %(id)s, 1, d, d, d - interval '1 minute', d::date,
               case when %(rule)s = 'cron' then d at time zone 'UTC' end
        from generate_series(%(begin)s::timestamptz, %(begin)s + interval '59 minutes', interval '1 minute') d
        """,
        {"id": schedule, "begin": begin, "rule": rule},
    )


def prune(db: Connection, schedule: int, before: datetime) -> None:
    """What ``sched prune`` does to the ledger, and a finished job that is not kept."""
    while db.execute("select sched.prune_ledger(%s, %s, %s)", (schedule, before, BATCH)).fetchone() != (0,):
        pass
    db.execute("delete from sched.jobs")
    db.execute("vacuum analyze sched.occurrences")
    db.execute("vacuum sched.jobs")


def size(db: Connection) -> dict[str, int]:
    """Bytes of the ledger's table and of each of its indexes."""
    rows = db.execute(
        """
        select c.relname, pg_relation_size(c.oid)
        from pg_class c
        where c.oid = 'sched.occurrences'::regclass
           or c.oid in (select i.indexrelid from pg_index i where i.indrelid = 'sched.occurrences'::regclass)
        """
    ).fetchall()
    return dict(rows)


@pytest.mark.parametrize("rule", ["every", "cron"])
def test_the_ledger_of_a_minutely_schedule_keeps_its_size(db: Connection, rule: str) -> None:
    schedule = add_schedule(db, policy=Policy(catchup="all", overlap="allow"))
    sizes = []
    for day in range(DAYS):
        begin = NOON + day * DAY
        for hour in range(24):
            plan_hour(db, schedule, begin + hour * HOUR, rule)
            fire(db, begin + (hour + 1) * HOUR - MINUTE)
        prune(db, schedule, begin + DAY - KEPT_DAYS * DAY)
        (total,) = db.execute("select pg_total_relation_size('sched.occurrences')").fetchone() or (0,)
        sizes.append(total)
    assert db.execute("select count(*) from sched.occurrences").fetchone() == (KEPT_DAYS * MINUTES,)
    print(f"{rule}: {max(sizes) / 1e6:.1f} MB at most in {DAYS} days")
    assert max(sizes) < MOST_BYTES, size(db)
    assert sizes[-1] <= 1.03 * max(sizes[: KEPT_DAYS + 3]), "it does not grow once the first dates have gone"

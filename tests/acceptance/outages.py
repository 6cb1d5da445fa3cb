"""Long outages, caught up by one real ``sched tick``: what became of each date, how long it took, how much memory.

The schedules were applied a year or a month ago, and nobody has ticked since. Beside them a schedule of every second
is in force and planned, as one that others keep alive would be: it shows how late fresh dates get meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from scheduler.core.models import Definition, OverlapPolicy
from scheduler.services.planner import Planner
from scheduler.storage.database import Connection, database_now
from tests.support.database import connect
from tests.support.fleet import fleet
from tests.support.invariants import violations
from tests.support.virtual import apply_at, definition
from tests.support.wait import wait_for

DAY = timedelta(days=1)
GRACE = timedelta(minutes=2)
MAX_AGE = DAY * 7
LONG = DAY * 4000
POLICIES = ("latest", "all", "none")
PATIENCE = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What was in force when everything stopped, and for how long nobody ticked."""

    name: str
    length: timedelta
    minutely: tuple[str, ...]
    daily: tuple[str, ...]


YEAR = Outage(
    name="one year on one minutely and 100 daily schedules",
    length=DAY * 365,
    minutely=("latest",),
    daily=tuple(POLICIES[n % 3] for n in range(100)),
)
MONTH = Outage(
    name="30 days on 10 minutely schedules",
    length=DAY * 30,
    minutely=tuple(POLICIES[n % 3] for n in range(10)),
    daily=(),
)
SHORT = Outage(
    name="three days on 3 minutely and 6 daily schedules",
    length=DAY * 3,
    minutely=POLICIES,
    daily=POLICIES * 2,
)


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Figures, and every way in which the result was not what the policies say."""

    name: str
    dates: int = 0
    jobs: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    megabytes: float = 0.0
    fresh: int = 0
    fresh_lateness: float = 0.0
    faults: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.name}: {self.dates} dates decided, {self.jobs} jobs, {self.seconds:.1f} s, of which "
            f"{self.processor_seconds:.1f} s of work, {self.megabytes:.0f} MB; {self.fresh} fresh dates at most "
            f"{self.fresh_lateness * 1000:.0f} ms late"
        )
        yield from (f"  FAULT {fault}" for fault in self.faults)


def recover(dsn: str, folder: Path, outage: Outage) -> Recovery:
    """Play one outage on an empty migrated database; returns how a ticker came out of it."""
    report = Recovery(name=outage.name)
    with connect(dsn) as db, fleet(dsn, folder) as processes:
        _put_fresh_schedule(db)
        stopped_at = database_now(db) - outage.length
        apply_at(db, stopped_at, *_definitions(outage))
        begin = time.monotonic()
        started_at = database_now(db)
        processes.start("ticker", "tick")
        until = wait_for(lambda: _caught_up_until(db), PATIENCE, f"the ticker to catch up after {outage.name}")
        report.seconds = time.monotonic() - begin
        report.megabytes = _peak_megabytes(processes.pid("ticker"))
        report.processor_seconds = sum(map(_processor_seconds, [processes.pid("ticker"), *_backends(db)]))
        processes.stop("ticker")
        report.faults += _check(db, outage, stopped_at, started_at, until, report)
        report.fresh, report.fresh_lateness = _row(
            db,
            "select count(*), coalesce(max(extract(epoch from j.created_at - j.logical_date)), 0)::float8"
            " from sched.jobs j where j.schedule = 'fresh' and j.logical_date > %s",
            # Dates that fell due while the process was starting are as late as its start.
            _row(db, "select min(created_at) from sched.jobs where schedule = 'fresh'")[0],
        )
    return report


def _put_fresh_schedule(db: Connection) -> None:
    """In force and planned for its whole horizon before the outage is put beside it."""
    fresh = definition("fresh", timedelta(seconds=1), catchup="all", overlap=OverlapPolicy.ALLOW, owner="others")
    apply_at(db, database_now(db), fresh)
    while Planner().run_once(db).schedules:
        pass


def _definitions(outage: Outage) -> list[Definition]:
    """``all`` keeps dates however old they are and makes a job of each; the others are as by default."""

    def one(name: str, cron: str, policy: str) -> Definition:
        max_age = LONG if policy == "all" else MAX_AGE
        return definition(name, cron, catchup=policy, grace=GRACE, max_age=max_age, overlap=OverlapPolicy.ALLOW)

    minutely = [one(f"minutely-{n}-{policy}", "* * * * *", policy) for n, policy in enumerate(outage.minutely)]
    daily = [one(f"daily-{n}-{policy}", f"{n % 60} 3 * * *", policy) for n, policy in enumerate(outage.daily)]
    return minutely + daily


def _caught_up_until(db: Connection) -> datetime | None:
    """Two seconds ago, if every date due until then is planned and decided."""
    behind, until = _row(
        db,
        """
        select exists (
          select from sched.schedules s
          where s.owner = 'team' and (s.planned_until < n.until or exists (
            select from sched.occurrences o
            where o.schedule_id = s.id and o.state = 'planned' and o.due_at <= n.until))), n.until
        from (select clock_timestamp() - interval '2 seconds' as until offset 0) n
        """,
    )
    return None if behind else until


def _check(
    db: Connection, outage: Outage, stopped_at: datetime, started_at: datetime, until: datetime, report: Recovery
) -> Iterator[str]:
    """Each date decided, by its policy, counted here and not by the product."""
    for each in _definitions(outage):
        is_minutely = each.name.startswith("minutely")
        step = timedelta(minutes=1) if is_minutely else DAY
        first = stopped_at.replace(second=0, microsecond=0) + step
        if not is_minutely:
            first = stopped_at.replace(hour=3, minute=int(each.name.split("-")[1]) % 60, second=0, microsecond=0)
            first += DAY if first <= stopped_at else timedelta(0)
        expected = (until - first) // step + 1
        decided = dict(
            db.execute(
                "select concat_ws(' ', o.state, o.reason), count(*) from sched.occurrences o"
                " join sched.schedules s on s.id = o.schedule_id"
                " where s.name = %s and o.logical_date <= %s and o.state <> 'planned' group by 1",
                (each.name, until),
            ).fetchall()
        )
        report.dates += sum(decided.values())
        report.jobs += decided.get("enqueued", 0)
        if sum(decided.values()) != expected:
            yield f"{each.name}: {expected} dates expected, decided are {decided}"
        yield from _check_policy(db, each, decided, expected, started_at)
    yield from (f"invariant: {name} ({count})" for name, count in violations(db).items())


def _check_policy(
    db: Connection, each: Definition, decided: dict[str, int], expected: int, started_at: datetime
) -> Iterator[str]:
    (of_old, newest_due) = _row(
        db,
        "select count(*) filter (where o.state = 'enqueued' and o.due_at < %s),"
        " max(o.due_at) filter (where o.state = 'enqueued')"
        " from sched.occurrences o join sched.schedules s on s.id = o.schedule_id where s.name = %s",
        started_at - each.catchup.grace,
        each.name,
    )
    match each.catchup.policy.value:
        case "all" if decided != {"enqueued": expected}:
            yield f"{each.name}: not every date became a job: {decided}"
        case "none" if of_old:
            yield f"{each.name}: {of_old} late dates were fired"
        case "latest" if each.name.startswith("daily") and of_old != 1:
            yield f"{each.name}: {of_old} jobs for what was late, not one"
        case "latest" if each.name.startswith("minutely") and (of_old or newest_due is None):
            yield f"{each.name}: {of_old} late dates were fired although later ones were due"


def _peak_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak) / 1024


def _processor_seconds(pid: int) -> float:
    """What a process has used so far. On a busy machine this says more than the wall clock."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _backends(db: Connection) -> list[int]:
    """The server's processes for the ticker's connections; the server runs on this machine."""
    rows = db.execute(
        "select pid from pg_stat_activity"
        " where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
    ).fetchall()
    return [row[0] for row in rows]


def _row(db: Connection, query: str, *parameters: Any) -> tuple[Any, ...]:
    row = db.execute(query, parameters or None).fetchone()
    assert row is not None
    return tuple(row)

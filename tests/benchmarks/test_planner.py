"""Planning a thousand schedules: rare rules beside minutely ones, and one rule shared by all.

Processor time of the planner's process is printed (``-s``), and rates are compared, never judged alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.core.models import Cron, Definition, DefinitionSet, Occurrence, Timing
from scheduler.core.time.occurrences import Expected
from scheduler.services.apply import apply_definitions
from scheduler.services.planner import Planner
from tests.support.database import connect

pytestmark = pytest.mark.benchmark

COUNT = 1_000
BEGIN = datetime(2026, 5, 5, 12, 0, 30, tzinfo=UTC)
LATER = timedelta(minutes=20)

RARE = [f"{n % 60} {n // 60} 29 2 *" for n in range(COUNT)]
OTHER_MONTHS = (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12)
MINUTELY = [
    f"* * * {','.join(str(m) for bit, m in enumerate((5, *OTHER_MONTHS)) if (2 * n + 1) >> bit & 1)} *"
    for n in range(COUNT)
]
"""No two of either kind mean the same, so that none is shared; all of these fire every minute of May."""


def wanted(expressions: Sequence[str]) -> DefinitionSet:
    schedules = {}
    for number, expression in enumerate(expressions):
        name = f"s{number}"
        timing = Timing(name=name, rule=Cron(expression=expression), timezone="Europe/Berlin")
        schedules[name] = Definition(name=name, owner="o", timing=timing, job_type="x")
    return DefinitionSet(schedules=schedules, limits={}, owners=frozenset({"o"}))


def plan(database: str, expressions: Sequence[str]) -> tuple[float, float, int]:
    """Processor time and wall time of planning from the beginning, and how many dates were written."""
    with connect(database) as connection:
        apply_definitions(connection, wanted(expressions), actor="bench", now=BEGIN)
        connection.execute("delete from sched.occurrences")
        connection.execute("update sched.schedules set planned_until = %(at)s, plan_at = %(at)s", {"at": BEGIN})
        planner, dates = Planner("bench"), 0
        began, processor = time.perf_counter(), time.process_time()
        while (done := planner.run_once(connection, BEGIN + LATER)).schedules:
            dates += done.dates
        return time.process_time() - processor, time.perf_counter() - began, dates


def test_a_thousand_rare_schedules_plan_as_fast_as_a_thousand_minutely_ones(database: str, empty_database: str) -> None:
    from scheduler.storage.migrations import migrate

    with connect(empty_database) as connection:
        migrate(connection)
    minutely, minutely_wall, minutely_dates = plan(database, MINUTELY)
    rare, rare_wall, rare_dates = plan(empty_database, RARE)
    print(
        f"\n{COUNT:,} schedules, processor time (wall): minutely {minutely:.2f} s ({minutely_wall:.2f} s, "
        f"{minutely_dates:,} dates); 0 0 29 2 * {rare:.2f} s ({rare_wall:.2f} s, {rare_dates:,} dates); "
        f"ratio {rare / minutely:.2f}"
    )
    assert minutely_dates >= 20 * COUNT and rare_dates == 2 * COUNT
    assert rare < 2 * minutely


def test_a_rule_shared_by_a_thousand_schedules_is_computed_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[tuple[datetime, datetime]] = []
    compute = Expected._occurrences

    def counted(self: Expected, after: datetime, until: datetime) -> Iterator[Occurrence]:
        computed.append((after, until))
        return compute(self, after, until)

    monkeypatch.setattr(Expected, "_occurrences", counted)
    processor, wall, dates = plan(database, ["3-59/5 * * * *", "3-59/5  * * * *"] * (COUNT // 2))
    print(f"\n{COUNT:,} schedules of one rule: {processor:.2f} s ({wall:.2f} s), computed {len(computed)} times")
    assert dates >= 4 * COUNT
    assert len(set(computed)) == len(computed) <= 6

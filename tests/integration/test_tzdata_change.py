"""TZ-09, two releases of the tz database that disagree: nothing lost, nothing twice (America/Vancouver, winter 2026).

Release 2025b puts 09:00 in Vancouver at 17:00Z in December 2026, release 2026f at 16:00Z.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.core.ledger.gaps import Gap, GapKind
from scheduler.core.ledger.history import History, expected_between
from scheduler.core.ledger.planning import LARGEST_MOVE
from scheduler.core.models import Catchup, CatchupPolicy, Cron, Definition, DefinitionSet, Timing
from scheduler.core.time.localtime import tz_version
from scheduler.services.apply import apply_definitions
from scheduler.services.backfill import BackfillRequest, BackfillResult, fill_gaps
from scheduler.services.planner import Planner
from scheduler.storage.backfills import waive_date
from scheduler.storage.database import Connection
from scheduler.storage.ledger import find_row
from scheduler.storage.schedules import DefinitionCache, histories, schedule_ids
from tests.support.build import fire
from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.invariants import violations
from tests.support.old_tzdata import plan_with_old_tzdata

pytestmark = pytest.mark.skipif(tz_version() < "2026f", reason="the newer release is not installed")

APPLIED = datetime(2026, 12, 1, 0, 0, tzinfo=UTC)


def apply_in_the_past(db: Connection, cron: str = "0 9 * * *", policy: CatchupPolicy = CatchupPolicy.ALL) -> None:
    """A schedule in Vancouver as a process with the old data left it on 1 December."""
    timing = Timing(name="s", rule=Cron(expression=cron), timezone="America/Vancouver")
    definition = Definition(
        name="s", owner="team", timing=timing, job_type="x", catchup=Catchup(policy=policy, grace=timedelta(minutes=5))
    )
    apply_definitions(db, DefinitionSet(schedules={"s": definition}, limits={}, owners=frozenset({"team"})), actor="t")
    db.execute("delete from sched.occurrences")
    db.execute(
        "update sched.schedules set applied_at = %(at)s, planned_until = %(at)s, plan_at = %(at)s, tzdata = '2025b'",
        {"at": APPLIED},
    )
    db.execute("update sched.schedule_revisions set valid_from = %s", (APPLIED,))
    db.execute("update sched.state set tzdata = '2025b'")


def ledger(db: Connection) -> list[tuple[str, str, str | None]]:
    return [
        (f"{row[0]:%d %H:%M}", row[1], row[2])
        for row in db.execute("select logical_date, state, reason from sched.occurrences order by 1").fetchall()
    ]


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 12, day, hour, minute, tzinfo=UTC)


def replan(db: Connection, now: datetime) -> None:
    db.execute("update sched.schedules set plan_at = least(plan_at, %s)", (now,))
    planner = Planner("new")
    while planner.run_once(db, now).schedules:
        pass


def test_planned_dates_move_to_their_new_instant(database: str, db: Connection) -> None:
    apply_in_the_past(db)
    assert "2025b" in plan_with_old_tzdata(database, at(1, 12))
    assert ledger(db) == [("01 17:00", "planned", None), ("02 17:00", "planned", None)]
    replan(db, at(1, 12))
    assert ledger(db)[:2] == [("01 16:00", "planned", None), ("02 16:00", "planned", None)]
    (event,) = db.execute(
        "select reason, details -> 'moved' -> 0 from sched.events where kind = 'dates_moved'"
    ).fetchall()
    assert event[0] == f"tz database 2025b gave way to {tz_version()}"
    assert event[1] == ["2026-12-01T17:00:00+00:00", "2026-12-01T16:00:00+00:00"]


def test_a_decided_wall_is_not_planned_again(database: str, db: Connection) -> None:
    apply_in_the_past(db)
    plan_with_old_tzdata(database, at(1, 12))
    assert fire(db, at(1, 17))[1] == 1
    replan(db, at(1, 17, 1))
    assert ledger(db)[:2] == [("01 17:00", "enqueued", None), ("02 16:00", "planned", None)]
    fire(db, at(2, 16))
    assert [
        row[0] for row in db.execute("select idempotency_key from sched.jobs order by logical_date").fetchall()
    ] == [
        "s:2026-12-01T17:00:00Z",
        "s:2026-12-02T16:00:00Z",
    ]


def test_a_date_whose_new_instant_has_passed_is_due_now(database: str, db: Connection) -> None:
    apply_in_the_past(db, policy=CatchupPolicy.NONE)
    plan_with_old_tzdata(database, at(1, 12))
    replan(db, at(1, 16, 30))
    assert ledger(db)[0] == ("01 16:00", "planned", None)
    assert fire(db, at(1, 16, 31))[1] == 1
    assert ledger(db)[0] == ("01 16:00", "enqueued", None)


def test_a_process_with_older_data_does_not_plan_and_says_so(database: str, db: Connection) -> None:
    apply_in_the_past(db)
    replan(db, at(1, 12))
    before = ledger(db)
    db.execute("update sched.schedules set plan_at = %s", (at(1, 13),))
    said = plan_with_old_tzdata(database, at(1, 13))
    assert "not planning: dates here were planned with tz database" in said
    assert ledger(db) == before


def test_a_rule_in_elapsed_time_is_not_touched(database: str, db: Connection) -> None:
    apply_in_the_past(db, "0 * * * *")
    plan_with_old_tzdata(database, at(1, 12))
    assert fire(db, at(1, 13))[1] == 13
    replan(db, at(1, 13, 30))
    assert [row[0] for row in ledger(db)] == [f"01 {hour:02}:00" for hour in range(1, 16)]


def test_a_newer_database_is_taken_note_of_after_a_planner_that_holds_the_schedules(
    database: str, db: Connection
) -> None:
    """Both lock schedules before the state, so that neither has what the other waits for."""
    apply_in_the_past(db)
    with connect(database) as planner, connect(database) as observer:
        with planner.transaction():
            planner.execute("select 1 from sched.schedules order by id for update")
            taking = Waiting(db, "select sched.use_tzdata('9999z')").until_blocked(observer)
            planner.execute("update sched.state set last_plan_at = clock_timestamp()")
        assert taking.rows() == [("9999z",)]


def test_walls_may_have_moved_only_after_one_database_gave_way_to_another(db: Connection) -> None:
    db.execute("update sched.state set tzdata = null, tzdata_changed_at = null")
    db.execute("select sched.use_tzdata('2026a')")
    assert db.execute("select sched.largest_move()").fetchone() == (timedelta(0),)
    db.execute("select sched.use_tzdata('2026b')")
    assert db.execute("select sched.largest_move()").fetchone() == (LARGEST_MOVE,)


def history_of(db: Connection) -> History:
    (schedule_id,) = schedule_ids(db, ["s"]).values()
    return histories(db, [schedule_id], DefinitionCache())[schedule_id]


def gap_at(db: Connection, instant: datetime) -> Gap:
    """The date that this process, with the newer data, expects then, as a gap."""
    history = history_of(db)
    (date,) = expected_between(history, instant - timedelta(minutes=1), instant)
    return Gap(history.schedule_id, "s", GapKind.MISSING, date)


def fill(db: Connection, gap: Gap) -> BackfillResult:
    return fill_gaps(db, [gap], 0, BackfillRequest(actor="t", since="x"))


def test_a_backfill_with_newer_data_than_has_planned_makes_no_second_job_of_a_wall(
    database: str, db: Connection
) -> None:
    """Tickers have 2025b, and so has what they recorded; a person at a newer machine fills the date by hand."""
    apply_in_the_past(db)
    plan_with_old_tzdata(database, at(1, 12))
    assert fire(db, at(1, 17))[1] == 1
    gap = gap_at(db, at(1, 16))
    row = find_row(db, history_of(db), gap.expected)
    assert row is not None and row.logical_date == at(1, 17)
    result = fill(db, gap)
    assert (len(result.inserted), result.already) == (0, 1)
    assert waive_date(db, gap.schedule_id, gap.expected, "t", "x") == "enqueued"
    assert ledger(db) == [("01 17:00", "enqueued", None), ("02 17:00", "planned", None)]
    assert violations(db) == {}


def test_a_date_filled_with_newer_data_is_not_planned_by_those_that_still_have_the_older(
    database: str, db: Connection
) -> None:
    apply_in_the_past(db)
    assert len(fill(db, gap_at(db, at(1, 16))).inserted) == 1
    plan_with_old_tzdata(database, at(1, 12))
    assert ledger(db) == [("01 16:00", "enqueued", "backfill"), ("02 17:00", "planned", None)]
    assert violations(db) == {}


def test_a_date_that_moves_to_before_the_end_of_what_is_planned_is_planned(database: str, db: Connection) -> None:
    """Planned up to 400 days from now, at 16:30; the date after the last one moves from 17:00 to 16:00 of that day."""
    apply_in_the_past(db)
    db.execute("update sched.state set host = 'pg_cron'")
    now = at(1, 16, 30)
    plan_with_old_tzdata(database, now)
    replan(db, now)
    replan(db, now + timedelta(days=3))
    dates = [row[0] for row in db.execute("select logical_date::date from sched.occurrences order by 1").fetchall()]
    first, last = dates[0], dates[-1]
    assert dates == [first + timedelta(days=day) for day in range((last - first).days + 1)]


def test_a_date_that_moves_into_what_was_planned_while_nobody_planned_is_planned(database: str, db: Connection) -> None:
    """Planned up to 17:00 when everything stopped for hours; the time that was at 18:00 is now at 17:00."""
    apply_in_the_past(db, "0 8-18 * * *")
    plan_with_old_tzdata(database, at(1, 13, 12))
    replan(db, at(1, 22, 10))
    assert ("01 17:00", "planned", None) in ledger(db)


def test_a_date_that_moves_into_what_is_decided_already_is_planned(database: str, db: Connection) -> None:
    """Those with the older data fired all they had planned, up to 09:00 of the 2nd: 09:30 moves to before that."""
    apply_in_the_past(db, "0,30 9 * * *")
    plan_with_old_tzdata(database, at(1, 17, 10))
    fire(db, at(1, 17, 30))
    fire(db, at(2, 17))
    assert ledger(db)[-1] == ("02 17:00", "enqueued", None)
    replan(db, at(2, 17, 5))
    assert ("02 16:30", "planned", None) in ledger(db)

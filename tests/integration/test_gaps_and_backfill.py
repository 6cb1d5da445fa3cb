"""Gaps anywhere in history, and filling them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from scheduler.core.ledger.gaps import Gap, GapKind
from scheduler.core.ledger.history import History
from scheduler.core.models import Cron, Definition, DefinitionSet, Every, Timing
from scheduler.errors import ConfigError, NotFound, StorageError
from scheduler.services.apply import apply_definitions
from scheduler.services.backfill import BackfillRequest, BackfillResult, change_backfill, fill_gaps, show_backfill
from scheduler.services.gaps import GapReport, GapRequest, find_gaps
from scheduler.services.planner import Planner
from scheduler.services.tick import Ticker
from scheduler.storage.backfills import waive_date
from scheduler.storage.database import Connection
from scheduler.storage.ledger import find_row
from scheduler.storage.schedules import DefinitionCache, histories, schedule_ids
from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.invariants import violations

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
SINCE = TODAY - timedelta(days=10)


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        apply(connection, "0 0 * * *")
        yield connection


def apply(db: Connection, cron: str, **changes: Any) -> None:
    timing = Timing(name="daily", rule=Cron(expression=cron), start=SINCE)
    definition = Definition(name="daily", owner="team", timing=timing, job_type="test.noop", **changes)
    apply_definitions(
        db, DefinitionSet(schedules={"daily": definition}, limits={}, owners=frozenset({"team"})), actor="test"
    )


def gaps(db: Connection, **changes: Any) -> GapReport:
    return find_gaps(db, GapRequest(**{"since": SINCE, **changes}))


def fill(db: Connection, report: GapReport, found: Sequence[Gap] | None = None, **options: Any) -> BackfillResult:
    request = BackfillRequest(actor="tester", since="x", **options)
    return fill_gaps(db, report.gaps if found is None else found, report.settled, request)


def count(db: Connection, query: str) -> int:
    row = db.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_dates_before_the_first_apply_are_missing_down_to_start(db: Connection) -> None:
    report = gaps(db, since=SINCE - timedelta(days=100))
    assert (report.expected, report.settled) == (len(report.gaps), 0)
    assert [gap.logical_date for gap in report.gaps][:2] == [SINCE, SINCE + timedelta(days=1)]
    assert {gap.kind for gap in report.gaps} == {GapKind.MISSING}


def test_a_filled_gap_is_settled_and_a_second_backfill_finds_nothing(db: Connection) -> None:
    report = gaps(db)
    result = fill(db, report, reason="outage")
    assert len(result.inserted) == len(report.gaps)
    again = gaps(db)
    assert (again.gaps, again.settled) == ([], len(report.gaps))
    assert fill(db, again).inserted == ()
    assert count(db, "select count(*) from sched.jobs where origin = 'backfill' and priority = 1000") == len(
        report.gaps
    )
    assert count(db, "select inserted from sched.backfills") == len(report.gaps)


def test_two_backfills_at_once_make_one_job_per_date(database: str, db: Connection) -> None:
    report = gaps(db)

    def run(_: int) -> BackfillResult:
        with connect(database) as own:
            return fill(own, report)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, range(2)))
    assert sum(len(result.inserted) for result in results) == len(report.gaps)
    assert sum(result.already for result in results) == len(report.gaps)
    assert count(db, "select count(*) from sched.jobs") == len(report.gaps)


def test_what_was_decided_before_is_kept_in_events(db: Connection) -> None:
    first = gaps(db).gaps[0]
    db.execute(
        """
        insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date, state,
                                       reason, decided_at, decided_by)
        values (%s, 1, %s, %s, %s, %s, 'missed', 'too_old', clock_timestamp(), 'test')
        """,
        (first.schedule_id, first.logical_date, first.logical_date, first.logical_date, first.logical_date.date()),
    )
    report = gaps(db)
    assert report.gaps[0].kind is GapKind.MISSED
    fill(db, report)
    assert db.execute("select reason, details ->> 'was' from sched.events where kind = 'backfilled'").fetchall() == [
        ("too_old", "missed")
    ]


def test_skipped_dates_are_gaps_only_when_asked_for(db: Connection) -> None:
    report = gaps(db)
    fill(db, report)
    db.execute(
        "update sched.occurrences set state = 'skipped', reason = 'paused', job_id = null where logical_date = %s",
        (SINCE,),
    )
    db.execute("delete from sched.jobs where logical_date = %s", (SINCE,))
    assert gaps(db).gaps == []
    included = gaps(db, kinds=frozenset({GapKind.SKIPPED}))
    assert [gap.logical_date for gap in included.gaps] == [SINCE]
    assert len(fill(db, included).inserted) == 1


def test_a_range_in_local_days_begins_and_ends_at_local_midnight(db: Connection) -> None:
    apply(db, "0 0 * * *")
    report = gaps(db, since=date(SINCE.year, SINCE.month, SINCE.day), until=(SINCE + timedelta(days=3)).date())
    assert [gap.logical_date for gap in report.gaps] == [SINCE + timedelta(days=n) for n in range(3)]


def test_gaps_of_an_old_revision_are_judged_by_it(db: Connection) -> None:
    before = gaps(db)
    apply(db, "0 5 * * 1")
    assert [gap.logical_date for gap in gaps(db).gaps] == [gap.logical_date for gap in before.gaps]
    fill(db, gaps(db))
    assert count(db, "select count(*) from sched.jobs where revision = 1") == len(before.gaps)


def test_backfill_jobs_of_a_queueing_schedule_run_one_at_a_time_unless_overlap_is_allowed(db: Connection) -> None:
    report = gaps(db)
    fill(db, report, report.gaps[:3])
    assert count(db, "select count(*) from sched.jobs where status = 'pending'") == 1
    fill(db, report, report.gaps[3:6], is_overlap_allowed=True)
    assert count(db, "select count(*) from sched.jobs where status = 'pending'") == 4


def test_live_jobs_are_claimed_before_backfilled_ones(db: Connection) -> None:
    fill(db, gaps(db), is_overlap_allowed=True)
    db.execute("select sched.enqueue('live')")
    row = db.execute("select job_type from sched.claim(array['default'], gen_random_uuid(), 1, '15 s')").fetchone()
    assert row == ("live",)


def test_unknown_names_and_empty_or_future_ranges_are_refused(db: Connection) -> None:
    with pytest.raises(NotFound, match='no schedule "nightly"'):
        gaps(db, schedules=["nightly"])
    with pytest.raises(ConfigError, match="range is empty"):
        gaps(db, since=TODAY, until=SINCE)
    with pytest.raises(ConfigError, match="in the future"):
        gaps(db, until=TODAY + timedelta(days=5))


def test_a_ticker_beside_a_backfill_decides_each_date_once(database: str, db: Connection) -> None:
    apply(db, "* * * * *")
    Ticker(Planner(), "test").run_once(db)

    def tick(_: int) -> None:
        with connect(database) as own:
            ticker = Ticker(Planner(), "test")
            for _ in range(5):
                ticker.run_once(own)

    with ThreadPoolExecutor(3) as pool:
        ticking = [pool.submit(tick, n) for n in range(2)]
        filled = pool.submit(lambda: fill(db, gaps(db)))
        for running in (*ticking, filled):
            running.result(60)
    assert gaps(db).gaps == []
    assert (
        count(
            db,
            "select count(*) from (select 1 from sched.jobs group by schedule_id, logical_date having count(*) > 1) x",
        )
        == 0
    )


def finish_jobs(db: Connection, status: str) -> None:
    db.execute(
        "update sched.jobs set status = %s, completed_at = clock_timestamp(), waiting_for = null,"
        " holds_overlap = false",
        (status,),
    )


def test_a_rerun_makes_a_new_generation_and_keeps_both_results(db: Connection) -> None:
    fill(db, gaps(db))
    finish_jobs(db, "succeeded")
    report = gaps(db, kinds=frozenset({GapKind.DONE}), until=SINCE + timedelta(days=2))
    assert [gap.logical_date for gap in report.gaps] == [SINCE, SINCE + timedelta(days=1)]
    result = fill(db, report, is_rerun=True, reason="wrong currency")
    assert len(result.inserted) == 2
    assert db.execute(
        "select generation, idempotency_key from sched.jobs where logical_date = %s order by id", (SINCE,)
    ).fetchall() == [(1, f"daily:{SINCE:%Y-%m-%d}T00:00:00Z"), (2, f"daily:{SINCE:%Y-%m-%d}T00:00:00Z#2")]
    assert count(db, "select count(*) from sched.events where kind = 'superseded'") == 2


def test_a_rerun_of_a_date_whose_job_is_unfinished_is_refused(db: Connection) -> None:
    fill(db, gaps(db))
    report = gaps(db, kinds=frozenset({GapKind.DONE}))
    result = fill(db, report, is_rerun=True)
    assert (len(result.inserted), len(result.unfinished)) == (0, len(report.gaps))


def test_dead_dates_are_gaps_when_asked_for_and_get_a_new_generation(db: Connection) -> None:
    fill(db, gaps(db))
    finish_jobs(db, "dead")
    assert gaps(db).gaps == []
    report = gaps(db, kinds=frozenset({GapKind.DEAD}))
    assert {gap.kind for gap in report.gaps} == {GapKind.DEAD}
    assert len(fill(db, report).inserted) == len(report.gaps)


def test_a_descending_backfill_runs_the_newest_date_first(db: Connection) -> None:
    fill(db, gaps(db), is_descending=True)
    newest = count(db, "select extract(epoch from max(logical_date))::bigint from sched.jobs")
    row = db.execute(
        "select extract(epoch from logical_date)::bigint"
        " from sched.claim(array['default'], gen_random_uuid(), 1, '15 s')"
    ).fetchone()
    assert row == (newest,)


def test_max_active_bounds_a_backfill_that_may_overlap(db: Connection) -> None:
    fill(db, gaps(db), is_overlap_allowed=True, max_active=3)
    assert count(db, "select count(*) from sched.jobs where status = 'pending'") == 3


def test_a_payload_of_the_backfill_is_merged_over_the_definitions(db: Connection) -> None:
    apply(db, "0 0 * * *", payload={"a": 1, "b": 1})
    fill(db, gaps(db, since=TODAY - timedelta(days=2)), payload={"b": 2})
    assert db.execute("select distinct payload from sched.jobs").fetchall() in ([({"b": 2},)], [({"a": 1, "b": 2},)])


def test_a_backfill_is_paused_resumed_and_cancelled(db: Connection) -> None:
    backfill = fill(db, gaps(db)).id
    assert backfill is not None
    total = count(db, "select count(*) from sched.jobs")
    assert change_backfill(db, backfill, "pause", actor="t").jobs == total
    assert count(db, "select count(*) from sched.jobs where status = 'held'") == total
    with pytest.raises(ConfigError, match="is paused: there is nothing to pause"):
        change_backfill(db, backfill, "pause", actor="t")
    assert change_backfill(db, backfill, "resume", actor="t").jobs == total
    assert count(db, "select count(*) from sched.jobs where status = 'pending'") == 1
    assert change_backfill(db, backfill, "cancel", actor="t").outcome == "cancelled"
    assert show_backfill(db, backfill).jobs == {"cancelled": total}
    assert violations(db) == {}


def test_a_job_cancelled_by_hand_while_its_backfill_is_resumed_stays_cancelled(database: str, db: Connection) -> None:
    backfill = fill(db, gaps(db), is_overlap_allowed=True).id
    assert backfill is not None
    total = change_backfill(db, backfill, "pause", actor="t").jobs
    job = count(db, "select max(id) from sched.jobs")
    with connect(database, autocommit=False) as person, connect(database) as other:
        person.execute("select sched.cancel(%s, 'person')", (job,))
        resuming = Waiting(other, "select jobs from sched.act_on_backfill(%s, 'resume', 't')", (backfill,))
        resuming.until_blocked(db)
        person.commit()
        assert resuming.rows() == [(total - 1,)]
    assert count(db, f"select count(*) from sched.jobs where id = {job} and status = 'cancelled'") == 1
    assert violations(db) == {}


def test_a_waived_date_is_settled_and_filled_only_when_asked_for(db: Connection) -> None:
    first = gaps(db).gaps[0]
    assert waive_date(db, first.schedule_id, first.expected, "t", "holiday") == "waived"
    assert waive_date(db, first.schedule_id, first.expected, "t", "holiday") == "already_waived"
    assert first.logical_date not in [gap.logical_date for gap in gaps(db).gaps]
    report = gaps(db, kinds=frozenset({GapKind.WAIVED}))
    assert len(fill(db, report).inserted) == 1
    assert waive_date(db, first.schedule_id, first.expected, "t", "late") == "enqueued"


def test_dates_whose_key_another_job_has_are_told_and_the_rest_of_their_slice_is_filled(db: Connection) -> None:
    report = gaps(db)
    taken = [gap.logical_date for gap in report.gaps[2:5:2]]
    for logical_date in taken:
        db.execute("select sched.enqueue('x', p_idempotency_key => %s)", (f"daily:{logical_date:%Y-%m-%dT%H:%M:%SZ}",))
    result = fill(db, report)
    assert [gap.logical_date for gap in result.key_taken] == taken
    assert (len(result.inserted), result.already) == (len(report.gaps) - 2, 0)
    assert gaps(db).gaps == list(result.key_taken)
    assert db.execute("select inserted, already, key_taken from sched.backfills").fetchall() == [
        (len(report.gaps) - 2, 0, 2)
    ]
    assert violations(db) == {}


def test_of_two_dates_with_one_key_the_first_is_filled_and_the_other_told(db: Connection) -> None:
    timing = Timing(name="twice", rule=Cron(expression="0 6,18 * * *"), start=SINCE)
    definition = Definition(
        name="twice", owner="other", timing=timing, job_type="x", idempotency_key="{schedule}:{local_date}"
    )
    apply_definitions(
        db, DefinitionSet(schedules={"twice": definition}, limits={}, owners=frozenset({"other"})), actor="test"
    )
    report = gaps(db, schedules=["twice"], until=TODAY)
    result = fill(db, report)
    assert {gap.logical_date.hour for gap in result.inserted} == {6}
    assert {gap.logical_date.hour for gap in result.key_taken} == {18}
    assert len(result.inserted) == len(result.key_taken) == 10
    assert violations(db) == {}


def decide_at(db: Connection, gap: Gap, instant: datetime, state: str, reason: str) -> None:
    """As if an older tz database had put the wall of this date there, and the newer one had come since."""
    db.execute("update sched.state set tzdata_changed_at = clock_timestamp() where tzdata_changed_at is null")
    db.execute(
        """
        insert into sched.occurrences (schedule_id, revision, logical_date, due_at, interval_start, local_date, wall,
                                       state, reason, decided_at, decided_by)
        values (%(id)s, 1, %(at)s, %(at)s, %(at)s, %(at)s::date, %(wall)s, %(state)s, %(reason)s, now(), 'test')
        """,
        {"id": gap.schedule_id, "at": instant, "wall": gap.expected.occurrence.wall, "state": state, "reason": reason},
    )


def test_a_date_whose_wall_was_settled_at_another_instant_is_no_gap_at_the_edge_of_a_range_either(
    db: Connection,
) -> None:
    (gap,) = gaps(db, until=SINCE + timedelta(minutes=1)).gaps
    decide_at(db, gap, gap.logical_date + timedelta(hours=1), "skipped", "paused")
    assert gaps(db, until=SINCE + timedelta(minutes=1)).settled == 1
    decided = find_row(db, history_of(db, "daily"), gap.expected)
    assert decided is not None and decided.logical_date == gap.logical_date + timedelta(hours=1)


def test_a_gap_whose_wall_was_missed_at_another_instant_is_filled_there(db: Connection) -> None:
    gap = gaps(db).gaps[3]
    decide_at(db, gap, gap.logical_date - timedelta(hours=1), "missed", "too_old")
    report = gaps(db)
    assert [each.kind for each in report.gaps].count(GapKind.MISSED) == 1
    fill(db, report)
    assert (gaps(db).gaps, gaps(db).settled) == ([], len(report.gaps))
    assert count(db, "select count(*) from sched.occurrences where state = 'enqueued'") == len(report.gaps)
    assert violations(db) == {}


def test_a_date_whose_wall_was_decided_at_another_instant_is_waived_there(db: Connection) -> None:
    gap = gaps(db).gaps[3]
    instant = gap.logical_date + timedelta(hours=1)
    decide_at(db, gap, instant, "missed", "too_old")
    assert waive_date(db, gap.schedule_id, gap.expected, "ann", "a holiday") == "waived"
    assert waive_date(db, gap.schedule_id, gap.expected, "ann", "a holiday") == "already_waived"
    assert db.execute("select logical_date, state from sched.occurrences where reason = 'a holiday'").fetchall() == [
        (instant, "waived")
    ]
    assert violations(db) == {}


def test_a_date_is_decided_by_hand_after_a_planner_that_writes_its_wall_at_another_instant(
    database: str, db: Connection
) -> None:
    gap = gaps(db).gaps[3]
    at = gap.logical_date
    statement = "select sched.waive(%s, 1, %s, %s, %s, false, %s, %s, 'ann', 'x')"
    parameters = (gap.schedule_id, at, at, gap.expected.occurrence.wall, at.date(), at)
    db.execute("update sched.state set tzdata_changed_at = clock_timestamp()")
    with connect(database) as planner, connect(database) as observer:
        with planner.transaction():
            planner.execute("select 1 from sched.schedules for update")
            decide_at(planner, gap, at + timedelta(hours=1), "missed", "too_old")
            waiving = Waiting(db, statement, parameters).until_blocked(observer)
        assert waiving.rows() == [("waived",)]
    assert db.execute(
        "select logical_date, state from sched.occurrences where wall = %s", (gap.expected.occurrence.wall,)
    ).fetchall() == [(at + timedelta(hours=1), "waived")]


def record_hour_later(db: Connection, gap: Gap, state: str) -> None:
    """As an older tz database had it: an hour later, where the newer one has the next date of the schedule."""
    decide_at(db, gap, gap.logical_date + timedelta(hours=1), state, "too_old")


def test_a_date_is_the_row_of_its_wall_also_when_another_row_has_its_instant(db: Connection) -> None:
    apply(db, "0 0 * * *")
    twice(db)
    nine, ten = gaps(db, schedules=["twice"]).gaps[:2]
    record_hour_later(db, nine, "missed")
    record_hour_later(db, ten, "skipped")
    report = gaps(db, schedules=["twice"], until=SINCE + timedelta(days=1))
    assert ([gap.logical_date for gap in report.gaps], report.settled) == ([ten.logical_date], 1)
    row = find_row(db, history_of(db, "twice"), ten.expected)
    assert row is not None and row.logical_date == ten.logical_date + timedelta(hours=1)


def test_a_rule_in_elapsed_time_has_its_dates_by_their_instants(db: Connection) -> None:
    twice(db, cron="0 */1 * * *")
    nine, ten = gaps(db, schedules=["twice"]).gaps[9:11]
    record_hour_later(db, nine, "missed")
    record_hour_later(db, ten, "skipped")
    report = gaps(db, schedules=["twice"], since=ten.logical_date, until=ten.logical_date + timedelta(minutes=1))
    assert [gap.kind for gap in report.gaps] == [GapKind.MISSED]
    row = find_row(db, history_of(db, "twice"), ten.expected)
    assert row is not None and row.logical_date == ten.logical_date


def test_two_dates_that_have_one_row_are_one_gap_and_filled_once(db: Connection) -> None:
    twice(db, "{logical_date}:{interval_start}")
    nine, ten = gaps(db, schedules=["twice"]).gaps[:2]
    record_hour_later(db, nine, "missed")
    report = gaps(db, schedules=["twice"], until=SINCE + timedelta(days=1))
    assert ([gap.logical_date for gap in report.gaps], report.expected) == ([ten.logical_date], 2)
    result = fill(db, report)
    assert (len(result.inserted), result.already, result.key_taken) == (1, 1, [])
    assert gaps(db, schedules=["twice"], until=SINCE + timedelta(days=1)).gaps == []


def test_what_fills_a_row_has_the_data_interval_of_the_row(db: Connection) -> None:
    twice(db)
    ten = gaps(db, schedules=["twice"]).gaps[1]
    decide_at(db, ten, ten.logical_date - timedelta(hours=1), "missed", "too_old")
    db.execute("update sched.occurrences set interval_start = logical_date - interval '5 hours'")
    fill(db, gaps(db, schedules=["twice"], until=SINCE + timedelta(days=1)))
    assert db.execute("select interval_end - interval_start from sched.jobs").fetchall() == [(timedelta(hours=5),)]


def history_of(db: Connection, name: str) -> History:
    (schedule_id,) = schedule_ids(db, [name]).values()
    return histories(db, [schedule_id], DefinitionCache())[schedule_id]


def twice(db: Connection, key: str = "{schedule}:{logical_date}", cron: str = "0 9,10 * * *") -> None:
    timing = Timing(name="twice", rule=Cron(expression=cron), start=SINCE)
    definition = Definition(name="twice", owner="other", timing=timing, job_type="x", idempotency_key=key)
    apply_definitions(
        db, DefinitionSet(schedules={"twice": definition}, limits={}, owners=frozenset({"other"})), actor="test"
    )


def test_a_date_whose_wall_was_settled_at_another_instant_meanwhile_is_left_alone(db: Connection) -> None:
    report = gaps(db)
    moved = report.gaps[3]
    decide_at(db, moved, moved.logical_date + timedelta(hours=1), "skipped", "paused")
    result = fill(db, report)
    assert (len(result.inserted), result.already) == (len(report.gaps) - 1, 1)
    assert moved not in result.inserted
    assert violations(db) == {}


@pytest.mark.parametrize("is_descending", [False, True])
def test_slices_follow_each_other_in_the_order_asked_for(
    db: Connection, monkeypatch: pytest.MonkeyPatch, is_descending: bool
) -> None:
    monkeypatch.setattr("scheduler.services.backfill.SLICE_DATES", 3)
    told: list[int] = []
    report = gaps(db)
    request = BackfillRequest(actor="tester", since="x", is_descending=is_descending)
    result = fill_gaps(db, report.gaps, 0, request, lambda done, of: told.append(done))
    assert list(result.inserted) == list(report.gaps)[:: -1 if is_descending else 1]
    assert told == [*range(0, len(report.gaps), 3), len(report.gaps)]
    made = [row[0] for row in db.execute("select logical_date from sched.jobs order by id").fetchall()]
    assert made == [gap.logical_date for gap in result.inserted]


def test_a_rule_in_elapsed_time_is_filled_without_walls(db: Connection) -> None:
    timing = Timing(name="hourly", rule=Every(interval=timedelta(hours=1)), start=SINCE)
    definition = Definition(name="hourly", owner="other", timing=timing, job_type="x")
    apply_definitions(
        db, DefinitionSet(schedules={"hourly": definition}, limits={}, owners=frozenset({"other"})), actor="test"
    )
    report = gaps(db, schedules=["hourly"], until=TODAY)
    assert len(fill(db, report).inserted) == 240
    assert count(db, "select count(*) from sched.occurrences where wall is null and state = 'enqueued'") == 240


def test_a_slice_that_cannot_be_filled_ends_the_backfill(db: Connection) -> None:
    report = gaps(db)
    db.execute("alter table sched.jobs add constraint no_jobs check (logical_date is null) not valid")
    with pytest.raises(StorageError, match="no_jobs"):
        fill(db, report)
    assert gaps(db).gaps == report.gaps


def test_what_a_backfill_filled_after_it_was_paused_is_durable_when_it_says_so(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.services.backfill.SLICE_DATES", 5)
    report = gaps(db)
    written: list[str] = []

    def on_progress(done: int, of: int) -> None:
        if done == 5:
            change_backfill(db, count(db, "select max(id) from sched.backfills"), "pause", actor="t")
        elif done == of:
            written.extend(row[0] for row in db.execute("select pg_current_wal_insert_lsn()::text").fetchall())

    fill_gaps(db, report.gaps, report.settled, BackfillRequest(actor="tester", since="x"), on_progress)
    assert db.execute("select pg_current_wal_flush_lsn() >= %s::pg_lsn", (written[0],)).fetchone() == (True,)
    assert count(db, "select count(*) from sched.jobs where status <> 'held'") == 0
    assert violations(db) == {}


def test_deciding_by_hand_under_an_older_snapshot_is_refused(db: Connection) -> None:
    """It would not see a wall that a pass or planner wrote while it waited for them."""
    report = gaps(db)
    first = report.gaps[0]
    db.execute("set default_transaction_isolation = 'repeatable read'")
    with pytest.raises(StorageError, match=r"sched.fill needs isolation level read committed, not repeatable read"):
        fill(db, report)
    with pytest.raises(StorageError, match=r"sched.waive needs isolation level read committed"):
        waive_date(db, first.schedule_id, first.expected, "t", "x")


def test_a_backfill_that_somebody_cancels_while_it_fills_says_so(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.services.backfill.SLICE_DATES", 5)
    report = gaps(db)

    def on_progress(done: int, of: int) -> None:
        if done == 5:
            change_backfill(db, count(db, "select max(id) from sched.backfills"), "cancel", actor="t")

    with pytest.raises(StorageError, match=r"^the database refuses this: backfill 1 was cancelled$"):
        fill_gaps(db, report.gaps, report.settled, BackfillRequest(actor="tester", since="x"), on_progress)
    assert db.execute("select status, count(*) from sched.jobs group by 1").fetchall() == [("cancelled", 5)]

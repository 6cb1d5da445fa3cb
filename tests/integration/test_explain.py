"""The story of a date, also of one that never existed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from scheduler.core.models import CalendarRule, Cron, Definition, DefinitionSet, ExcludedDays, Timing
from scheduler.errors import ConfigError, NotFound
from scheduler.services.apply import apply_definitions
from scheduler.services.backfill import BackfillRequest, fill_gaps
from scheduler.services.explain import Explanation, explain
from scheduler.services.gaps import GapRequest, find_gaps
from scheduler.storage.database import Connection
from tests.support.build import claim_all, complete

START = datetime(2026, 3, 1, tzinfo=UTC)


def apply(db: Connection, cron: str = "30 2 * * *", timezone: str = "Europe/Berlin", **changes: Any) -> None:
    timing = Timing(name="s", rule=Cron(expression=cron), timezone=timezone, start=START, **changes)
    definition = Definition(name="s", owner="team", timing=timing, job_type="test.noop", file="s.yaml")
    wanted = DefinitionSet(schedules={"s": definition}, limits={}, owners=frozenset({"team"}))
    apply_definitions(db, wanted, actor="tester")


def told(explanation: Explanation) -> str:
    return "\n".join(step.text for step in explanation.steps)


def test_a_date_that_ran_is_told_from_definition_to_result(db: Connection) -> None:
    apply(db)
    request = GapRequest(since=date(2026, 3, 29), until=date(2026, 3, 30))
    report = find_gaps(db, request)
    fill_gaps(db, report.gaps, 0, BackfillRequest(actor="anna", since="2026-03-29", reason="lost"))
    ((job_id, token),) = claim_all(db)
    complete(db, job_id, token)
    explanation = explain(db, "s", date(2026, 3, 29))
    text = told(explanation)
    assert explanation.logical_date == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    assert "revision 1 of s (s.yaml)" in text
    assert "02:30 does not exist, fires at 03:00" in text
    assert "enqueued (backfill: a backfill asked for it) by anna" in text
    assert "attempt 1 by" in text
    assert "succeeded after" in text
    assert "its result is kept" in text
    assert [step.kind for step in explanation.steps][:2] == ["definition", "expected"]


def test_a_running_job_says_how_far_it_is_and_a_finished_one_who_replayed_it(db: Connection) -> None:
    apply(db)
    report = find_gaps(db, GapRequest(since=date(2026, 3, 29), until=date(2026, 3, 30)))
    fill_gaps(db, report.gaps, 0, BackfillRequest(actor="anna", since="2026-03-29"))
    ((job_id, token),) = claim_all(db)
    beat = (
        "select sched.heartbeat(array[%s]::bigint[], array[%s]::uuid[], '15 s', array[0.4]::real[], array['page 40'])"
    )
    db.execute(beat, (job_id, token))
    assert f"job {job_id} is running, 40%: page 40" in told(explain(db, "s", date(2026, 3, 29)))
    assert db.execute("select id, progress, progress_note from sched.running").fetchall() == [
        (job_id, pytest.approx(0.4), "page 40")
    ]

    complete(db, job_id, token)
    db.execute("select sched.replay(%s, 'ben', 'wrong template')", (job_id,))
    text = told(explain(db, "s", date(2026, 3, 29)))
    assert "40%" not in text
    assert "job replayed by ben, was succeeded: wrong template" in text


def test_a_missing_date_says_so(db: Connection) -> None:
    apply(db)
    assert "missing: the schedule was first applied" in told(explain(db, "s", date(2026, 3, 10)))


def test_a_date_before_the_start_is_not_expected(db: Connection) -> None:
    apply(db)
    explanation = explain(db, "s", date(2026, 2, 1))
    assert explanation.logical_date is None
    assert "not expected: the schedule began on 2026-03-01T00:00:00Z" in told(explanation)


def test_a_day_that_a_calendar_excludes_names_it(db: Connection) -> None:
    apply(db, calendar=CalendarRule(excluded=(ExcludedDays(name="weekend", weekdays=frozenset({5, 6})),)))
    assert "not expected: the calendar weekend excludes that day" in told(explain(db, "s", date(2026, 3, 7)))


def test_a_day_without_a_date_names_the_nearest(db: Connection) -> None:
    apply(db, "0 9 * * 1", "UTC")
    text = told(explain(db, "s", date(2026, 3, 4)))
    assert "the rule in force has no date 2026-03-04" in text
    assert "2026-03-09T09:00:00Z" in text


def test_a_date_to_come_is_planned(db: Connection) -> None:
    apply(db, "0 0 1 1 *", "UTC")
    year = datetime.now(UTC).year + 1
    assert "planned: due in" in told(explain(db, "s", date(year, 1, 1)))


def test_an_ambiguous_day_lists_its_dates(db: Connection) -> None:
    apply(db, "0 */6 * * *", "UTC")
    with pytest.raises(ConfigError, match="ambiguous: s has 2026-03-04T00:00:00Z, 2026-03-04T06:00:00Z"):
        explain(db, "s", date(2026, 3, 4))
    assert explain(db, "s", datetime(2026, 3, 4, 6, tzinfo=UTC)).logical_date is not None


def test_a_pruned_date_says_that_the_ledger_is_gone(db: Connection) -> None:
    apply(db)
    db.execute("update sched.schedules set ledger_from = %s", (START + timedelta(days=20),))
    assert "not expected: the ledger was pruned up to" in told(explain(db, "s", date(2026, 3, 10)))


def test_a_pause_is_named(db: Connection) -> None:
    apply(db)
    db.execute(
        "insert into sched.pauses (schedule_id, from_at, until_at, actor, reason)"
        " select id, '2026-03-09', '2026-03-11', 'bob', 'migration' from sched.schedules"
    )
    assert "paused by bob, until 2026-03-11T00:00:00Z: migration" in told(explain(db, "s", date(2026, 3, 10)))


def test_an_unknown_schedule_is_said(db: Connection) -> None:
    with pytest.raises(NotFound, match='no schedule "x"'):
        explain(db, "x", date(2026, 3, 10))

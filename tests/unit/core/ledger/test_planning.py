"""How far ahead schedules are planned, and when the planner looks again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from scheduler.core.ledger.history import History, RevisionSpan
from scheduler.core.ledger.planning import NEVER, PG_CRON_HORIZON, TICK_HORIZON, extension, horizon_of
from scheduler.core.models import CatchupPolicy, Cron, Rule, Timing

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def history(rule: str, *, ends: datetime | None = None, retired: datetime | None = None) -> History:
    timing = Timing(name="s", rule=_rule(rule), end=ends)
    span = RevisionSpan(
        revision=1, valid_from=NOW - timedelta(days=400), valid_until=retired, timing=timing, grace=MINUTE
    )
    return History(schedule_id=1, name="s", applied_at=NOW - timedelta(days=400), spans=(span,))


def _rule(text: str) -> Rule:
    return Cron(expression=text)


def test_a_minutely_schedule_is_planned_ten_minutes_ahead() -> None:
    ahead = extension(history("* * * * *"), NOW, NOW, TICK_HORIZON, 5000)
    assert [date.occurrence.logical_date for date in ahead.dates] == [NOW + n * MINUTE for n in range(1, 11)]
    assert ahead.planned_until == NOW + 10 * MINUTE
    assert NOW < ahead.plan_at < NOW + 10 * MINUTE


def test_a_rare_schedule_has_two_dates_ahead_and_is_looked_at_when_the_first_passes() -> None:
    ahead = extension(history("0 0 1 1 *"), NOW, NOW, TICK_HORIZON, 5000)
    assert [date.occurrence.logical_date.year for date in ahead.dates] == [2027, 2028]
    assert ahead.planned_until == datetime(2028, 1, 1, tzinfo=UTC)
    assert ahead.plan_at == datetime(2027, 1, 1, tzinfo=UTC)


def test_a_schedule_that_never_fires_is_not_looked_at_again() -> None:
    ahead = extension(history("0 0 31 2 *"), NOW, NOW, TICK_HORIZON, 5000)
    assert (list(ahead.dates), ahead.planned_until, ahead.plan_at) == ([], NEVER, NEVER)


def test_a_rule_that_ends_is_planned_to_its_end() -> None:
    ahead = extension(history("0 * * * *", ends=NOW + timedelta(hours=1, minutes=30)), NOW, NOW, TICK_HORIZON, 5000)
    assert [date.occurrence.logical_date for date in ahead.dates] == [NOW + timedelta(hours=1)]
    assert ahead.planned_until == NEVER


def test_an_outage_is_caught_up_slice_by_slice() -> None:
    behind = NOW - timedelta(days=1)
    first = extension(history("* * * * *"), behind, NOW, TICK_HORIZON, 1000)
    assert len(first.dates) == 1000
    assert first.planned_until == behind + 1000 * MINUTE
    assert first.plan_at == NOW
    second = extension(history("* * * * *"), first.planned_until, NOW, TICK_HORIZON, 1000)
    assert second.dates[0].occurrence.logical_date == first.planned_until + MINUTE
    assert second.planned_until == NOW + 10 * MINUTE


def test_what_a_retired_schedule_still_lacks_is_planned_and_nothing_more() -> None:
    ahead = extension(history("* * * * *", retired=NOW - 5 * MINUTE), NOW - 10 * MINUTE, NOW, TICK_HORIZON, 5000)
    assert len(ahead.dates) == 5
    assert ahead.planned_until == NEVER


def test_pg_cron_is_planned_far_ahead_but_not_without_bound() -> None:
    daily = extension(history("0 0 * * *"), NOW, NOW, PG_CRON_HORIZON, 100_000)
    assert len(daily.dates) == 400
    minutely = extension(history("* * * * *"), NOW, NOW, PG_CRON_HORIZON, 100_000)
    assert len(minutely.dates) == 2000


def test_dates_to_come_are_planned_with_every_slice_of_an_outage_unless_the_newest_stands_for_all() -> None:
    behind = NOW - timedelta(days=1)
    latest = history("* * * * *")
    for policy, fresh in ((CatchupPolicy.LATEST, 0), (CatchupPolicy.ALL, 10), (CatchupPolicy.NONE, 10)):
        spans = tuple(replace(span, catchup=policy) for span in latest.spans)
        first = extension(replace(latest, spans=spans), behind, NOW, TICK_HORIZON, 1000)
        assert first.planned_until == behind + 1000 * MINUTE
        assert sum(date.occurrence.logical_date > NOW for date in first.dates) == fresh


def test_pg_cron_is_looked_at_again_when_half_of_what_is_planned_has_passed() -> None:
    minutely = extension(history("* * * * *"), NOW, NOW, PG_CRON_HORIZON, 100_000)
    assert minutely.planned_until == NOW + 2000 * MINUTE
    assert minutely.plan_at == NOW + 1000 * MINUTE
    daily = extension(history("0 0 * * *"), NOW, NOW, PG_CRON_HORIZON, 100_000)
    assert daily.plan_at == NOW + timedelta(days=200)


def test_many_schedules_share_the_rows_that_pg_cron_may_have_planned() -> None:
    assert horizon_of("pg_cron", lambda: 1).max_dates == 2000
    assert horizon_of("pg_cron", lambda: 10_000).max_dates == 200
    assert horizon_of("pg_cron", lambda: 5_000_000).max_dates == 2
    assert horizon_of("tick", lambda: 10_000) == TICK_HORIZON

"""Occurrences of every kind of rule: logical dates, walls, intervals, due times, and the ends of ranges."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest

from scheduler.core.models import (
    At,
    CalendarRule,
    Cron,
    DstRule,
    Every,
    ExcludedDays,
    GapRule,
    Occurrence,
    RepeatRule,
    Rrule,
    Shift,
    Timing,
)
from scheduler.core.time.occurrences import (
    Expected,
    compile_timing,
    due_lead,
    firings,
    never_fires,
    next_occurrences,
    occurrences_between,
    previous_occurrence,
)
from scheduler.errors import DefinitionError

DAY = timedelta(days=1)
WEEKEND = ExcludedDays(name="weekend", weekdays=frozenset({5, 6}))
CHRISTMAS = ExcludedDays(name="christmas", dates=frozenset({date(2026, 12, 25), date(2026, 12, 26)}))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC) if "+" in text or "Z" in text else _utc(text)


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def berlin(cron: str, **given: object) -> Timing:
    return Timing(name="s", rule=Cron(expression=cron), timezone="Europe/Berlin", **given)  # type: ignore[arg-type]


def dates(timing: Timing, after: str, until: str) -> list[str]:
    return [_text(one.logical_date) for one in occurrences_between(timing, utc(after), utc(until))]


def walls(timing: Timing, after: str, until: str) -> list[str]:
    return [_wall(one) for one in occurrences_between(timing, utc(after), utc(until))]


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%MZ}"


def _wall(one: Occurrence) -> str:
    assert one.wall is not None
    assert one.wall.tzinfo is None
    return f"{one.wall:%m-%dT%H:%M}/{one.wall.fold}"


def test_a_range_leaves_out_its_start_and_takes_its_end() -> None:
    timing = berlin("0 * * * *")
    assert dates(timing, "2026-01-01T10:00", "2026-01-01T12:00") == ["2026-01-01T11:00Z", "2026-01-01T12:00Z"]
    assert dates(timing, "2026-01-01T09:59:59.999999", "2026-01-01T10:59:59.999999") == ["2026-01-01T10:00Z"]
    assert dates(timing, "2026-01-01T12:00", "2026-01-01T12:00") == []
    assert dates(timing, "2026-01-01T12:00", "2026-01-01T10:00") == []


def test_instants_of_other_zones_are_understood_and_naive_ones_refused() -> None:
    timing = berlin("0 12 * * *")
    assert dates(timing, "2026-01-01T00:00+09:00", "2026-01-01T20:00+09:00") == ["2026-01-01T11:00Z"]
    with pytest.raises(ValueError, match="has no zone"):
        occurrences_between(timing, utc("2026-01-01").replace(tzinfo=None), utc("2026-01-02"))


def test_limit_takes_the_oldest() -> None:
    found = occurrences_between(berlin("0 * * * *"), utc("2026-01-01"), utc("2026-02-01"), 2)
    assert [_text(one.logical_date) for one in found] == ["2026-01-01T01:00Z", "2026-01-01T02:00Z"]


def test_an_occurrence_carries_its_wall_time_local_day_and_interval() -> None:
    (one,) = occurrences_between(berlin("30 0 * * *"), utc("2026-07-01T12:00"), utc("2026-07-02T12:00"))
    assert one == Occurrence(
        logical_date=utc("2026-07-01T22:30"),
        due_at=utc("2026-07-01T22:30"),
        wall=datetime.fromisoformat("2026-07-02T00:30"),
        local_date=date(2026, 7, 2),
        interval_start=utc("2026-06-30T22:30"),
    )


def test_start_is_inclusive_end_exclusive_and_the_first_interval_reaches_back_over_start() -> None:
    timing = berlin("0 0 * * *", start=utc("2026-01-01T23:00"), end=utc("2026-01-04T23:00"))
    found = occurrences_between(timing, utc("2025-01-01"), utc("2027-01-01"))
    assert [_text(one.logical_date) for one in found] == ["2026-01-01T23:00Z", "2026-01-02T23:00Z", "2026-01-03T23:00Z"]
    assert _text(found[0].interval_start) == "2025-12-31T23:00Z"
    assert previous_occurrence(timing, utc("2026-01-01T23:00")) is None
    last = previous_occurrence(timing, utc("2030-01-01"))
    assert last == found[-1]


def test_a_fixed_time_in_a_gap_keeps_its_wall_and_fires_after_it_or_not_at_all() -> None:
    after, until = "2026-03-28T12:00", "2026-03-30T12:00"
    timing = berlin("30 2 * * *")
    assert dates(timing, after, until) == ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]
    assert walls(timing, after, until) == ["03-29T02:30/0", "03-30T02:30/0"]
    skipping = berlin("30 2 * * *", dst=DstRule(gap=GapRule.SKIP))
    assert dates(skipping, after, until) == ["2026-03-30T00:30Z"]


def test_several_skipped_times_make_one_firing_with_the_earliest_wall() -> None:
    timing = berlin("0,20,40 2 * * *")
    assert dates(timing, "2026-03-28T12:00", "2026-03-29T12:00") == ["2026-03-29T01:00Z"]
    assert walls(timing, "2026-03-28T12:00", "2026-03-29T12:00") == ["03-29T02:00/0"]


def test_a_real_time_at_the_end_of_the_gap_wins_over_a_skipped_one() -> None:
    timing = berlin("0 2,3 * * *")
    assert dates(timing, "2026-03-28T12:00", "2026-03-29T12:00") == ["2026-03-29T01:00Z"]
    assert walls(timing, "2026-03-28T12:00", "2026-03-29T12:00") == ["03-29T03:00/0"]


@pytest.mark.parametrize(
    ("overlap", "expected_dates", "expected_walls"),
    [
        (RepeatRule.FIRST, ["2026-10-25T00:30Z"], ["10-25T02:30/0"]),
        (RepeatRule.LAST, ["2026-10-25T01:30Z"], ["10-25T02:30/0"]),
        (RepeatRule.BOTH, ["2026-10-25T00:30Z", "2026-10-25T01:30Z"], ["10-25T02:30/0", "10-25T02:30/1"]),
    ],
)
def test_a_repeated_fixed_time_fires_as_dst_overlap_says(
    overlap: RepeatRule, expected_dates: list[str], expected_walls: list[str]
) -> None:
    timing = berlin("30 2 * * *", dst=DstRule(overlap=overlap))
    assert dates(timing, "2026-10-24T12:00", "2026-10-25T12:00") == expected_dates
    assert walls(timing, "2026-10-24T12:00", "2026-10-25T12:00") == expected_walls


def test_a_wild_rule_fires_in_both_passes_whatever_dst_says_and_tells_them_apart_by_fold() -> None:
    for overlap in RepeatRule:
        timing = berlin("*/30 * * * *", dst=DstRule(overlap=overlap, gap=GapRule.RUN_AFTER))
        assert walls(timing, "2026-10-24T23:30", "2026-10-25T02:00") == [
            "10-25T02:00/0",
            "10-25T02:30/0",
            "10-25T02:00/1",
            "10-25T02:30/1",
            "10-25T03:00/0",
        ]
        assert walls(timing, "2026-03-29T00:00", "2026-03-29T01:30") == [
            "03-29T01:30/0",
            "03-29T03:00/0",
            "03-29T03:30/0",
        ]


def test_every_counts_elapsed_time_from_its_anchor_through_a_clock_change() -> None:
    timing = Timing(name="s", rule=Every(interval=timedelta(hours=5)), timezone="Europe/Berlin")
    assert dates(timing, "2026-03-28T20:00", "2026-03-29T12:00") == [
        "2026-03-29T01:00Z",
        "2026-03-29T06:00Z",
        "2026-03-29T11:00Z",
    ]
    anchored = Timing(name="s", rule=Every(interval=timedelta(days=2), anchor=utc("2026-01-02T03:04:05")))
    found = occurrences_between(anchored, utc("2026-01-01"), utc("2026-01-05"))
    assert [one.logical_date for one in found] == [utc("2026-01-02T03:04:05"), utc("2026-01-04T03:04:05")]
    assert found[0].interval_start == utc("2025-12-31T03:04:05")
    assert found[0].wall is None


def test_every_gives_each_date_the_local_day_it_lies_in() -> None:
    timing = Timing(name="s", rule=Every(interval=timedelta(minutes=20)), timezone="America/New_York")
    found = occurrences_between(timing, utc("2026-11-01T03:30"), utc("2026-11-02T05:30"))
    assert found[0].local_date == date(2026, 10, 31)
    assert sum(one.local_date == date(2026, 11, 1) for one in found) == 25 * 3
    assert found[-1].local_date == date(2026, 11, 2)


@pytest.mark.parametrize(
    "interval",
    [
        timedelta(milliseconds=500),
        timedelta(milliseconds=1001),
        timedelta(0),
        timedelta(seconds=-5),
        timedelta(days=40_000),
    ],
)
def test_every_takes_whole_seconds_up_to_a_century(interval: timedelta) -> None:
    with pytest.raises(DefinitionError, match="whole number of seconds"):
        compile_timing(Timing(name="s", rule=Every(interval=interval)))


def test_at_takes_instants_and_local_times() -> None:
    moments = (
        utc("2026-03-29T05:00"),
        datetime.fromisoformat("2026-03-29T02:30"),
        datetime.fromisoformat("2026-01-05T09:00"),
        utc("2026-01-05T08:00"),
    )
    timing = Timing(name="s", rule=At(moments=moments), timezone="Europe/Berlin")
    found = next_occurrences(timing, utc("2020-01-01"), 10)
    assert [_text(one.logical_date) for one in found] == ["2026-01-05T08:00Z", "2026-03-29T01:00Z", "2026-03-29T05:00Z"]
    assert [one.wall and f"{one.wall:%H:%M}" for one in found] == ["09:00", "02:30", None]
    assert found[0].interval_start == found[0].logical_date
    assert found[1].interval_start == found[0].logical_date
    assert previous_occurrence(timing, utc("2027-01-01")) == found[-1]
    assert never_fires(Timing(name="s", rule=At(moments=())))


def test_excluded_days_are_not_expected_and_intervals_reach_over_them() -> None:
    timing = berlin("0 9 * * *", calendar=CalendarRule(excluded=(WEEKEND, CHRISTMAS)))
    found = occurrences_between(timing, utc("2026-12-23T12:00"), utc("2026-12-29T12:00"))
    assert [_text(one.logical_date) for one in found] == ["2026-12-24T08:00Z", "2026-12-28T08:00Z", "2026-12-29T08:00Z"]
    assert _text(found[1].interval_start) == "2026-12-24T08:00Z"


@pytest.mark.parametrize(("shift", "due"), [(Shift.NEXT, "2026-12-28T08:00Z"), (Shift.PREVIOUS, "2026-12-24T08:00Z")])
def test_shift_moves_when_a_date_is_due_and_nothing_else(shift: Shift, due: str) -> None:
    timing = berlin("0 9 25 12 *", calendar=CalendarRule(excluded=(WEEKEND, CHRISTMAS), shift=shift))
    (one,) = occurrences_between(timing, utc("2026-12-01"), utc("2026-12-31"))
    assert _text(one.logical_date) == "2026-12-25T08:00Z"
    assert one.local_date == date(2026, 12, 25)
    assert _text(one.due_at) == due


def test_a_shifted_date_keeps_its_wall_time_across_a_clock_change() -> None:
    saturday = ExcludedDays(name="saturday", weekdays=frozenset({5}))
    timing = berlin("30 2 28 3 *", calendar=CalendarRule(excluded=(saturday,), shift=Shift.NEXT))
    (one,) = occurrences_between(timing, utc("2026-03-01"), utc("2026-04-01"))
    assert (_text(one.logical_date), _text(one.due_at)) == ("2026-03-28T01:30Z", "2026-03-29T01:00Z")
    elapsed = Timing(name="s", rule=Every(interval=DAY), timezone="Europe/Berlin", calendar=timing.calendar)
    found = occurrences_between(elapsed, utc("2026-03-27T12:00"), utc("2026-03-28T12:00"))
    assert [(_text(one.logical_date), _text(one.due_at)) for one in found] == [
        ("2026-03-28T00:00Z", "2026-03-29T00:00Z")
    ]


def test_a_calendar_that_excludes_everything_leaves_no_date_under_any_shift() -> None:
    everything = ExcludedDays(name="never", weekdays=frozenset(range(7)))
    for shift in Shift:
        timing = berlin("0 9 * * *", calendar=CalendarRule(excluded=(everything,), shift=shift), end=utc("2030-01-01"))
        assert next_occurrences(timing, utc("2026-01-01"), 1) == []


def test_a_rule_whose_only_weekday_is_excluded_never_fires() -> None:
    assert never_fires(berlin("0 9 * * sat", calendar=CalendarRule(excluded=(WEEKEND,))))


def test_due_lead_is_how_early_a_date_can_be_due() -> None:
    assert due_lead(berlin("0 9 * * *")) == timedelta(0)
    assert due_lead(berlin("0 9 * * *", calendar=CalendarRule(excluded=(WEEKEND,), shift=Shift.NEXT))) == timedelta(0)
    timing = berlin("0 9 * * *", calendar=CalendarRule(excluded=(WEEKEND, CHRISTMAS), shift=Shift.PREVIOUS))
    lead = due_lead(timing)
    assert timedelta(days=3) <= lead <= timedelta(days=6)
    for one in occurrences_between(timing, utc("2026-12-01"), utc("2027-01-10")):
        assert one.logical_date - one.due_at <= lead


def test_jitter_moves_due_at_by_the_same_seconds_every_time() -> None:
    plain, jittered = berlin("0 9 * * *"), berlin("0 9 * * *", jitter=timedelta(minutes=5))
    after, until = utc("2026-01-01"), utc("2026-07-01")
    moved = [one.due_at - one.logical_date for one in occurrences_between(jittered, after, until)]
    assert moved[:3] == [timedelta(seconds=131), timedelta(seconds=51), timedelta(seconds=109)]
    assert all(timedelta(0) <= delay < timedelta(minutes=5) for delay in moved)
    assert len(set(moved)) > 100
    assert dates(plain, "2026-01-01", "2026-07-01") == dates(jittered, "2026-01-01", "2026-07-01")
    other = Timing(name="other", rule=jittered.rule, timezone=jittered.timezone, jitter=jittered.jitter)
    assert [one.due_at - one.logical_date for one in occurrences_between(other, after, until)] != moved


def test_a_rule_of_once_in_years_is_found_in_both_directions() -> None:
    timing = berlin("0 0 29 2 *")
    assert [_text(one.logical_date) for one in next_occurrences(timing, utc("2097-01-01"), 2)] == [
        "2104-02-28T23:00Z",
        "2108-02-28T23:00Z",
    ]
    one = previous_occurrence(timing, utc("2104-02-28T23:00"))
    assert one is not None
    assert (_text(one.logical_date), _text(one.interval_start)) == ("2096-02-28T23:00Z", "2092-02-28T23:00Z")
    sundays = berlin("0 0 29 2 */7")
    assert [_text(one.logical_date)[:4] for one in next_occurrences(sundays, utc("2026-01-01"), 3)] == [
        "2032",
        "2060",
        "2088",
    ]


def test_next_occurrences_stops_at_its_horizon() -> None:
    assert len(next_occurrences(berlin("0 * * * *"), utc("2026-01-01"), 9, utc("2026-01-01T04:00"))) == 4
    assert next_occurrences(berlin("0 0 29 2 *"), utc("2026-01-01"), 1, utc("2027-01-01")) == []


def test_previous_is_the_latest_date_before_an_instant() -> None:
    timing = berlin("0 9 * * *")
    one = previous_occurrence(timing, utc("2026-01-02T08:00"))
    assert one is not None
    assert (_text(one.logical_date), _text(one.interval_start)) == ("2026-01-01T08:00Z", "2025-12-31T08:00Z")
    later = previous_occurrence(timing, utc("2026-01-02T08:00") + timedelta(microseconds=1))
    assert later is not None
    assert _text(later.logical_date) == "2026-01-02T08:00Z"


def test_ranges_at_the_ends_of_the_calendar_are_answered() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    for rule in (Cron(expression="0 0 1 1 *"), Every(interval=timedelta(days=365)), At(moments=(utc("2026-01-01"),))):
        timing = Timing(name="s", rule=rule, timezone="Europe/Berlin")
        assert len(next_occurrences(timing, first, 1)) == 1
        assert next_occurrences(timing, last, 1) == []
        assert previous_occurrence(timing, first) is None
        assert previous_occurrence(timing, last) is not None


def test_equal_rules_share_what_is_computed() -> None:
    after, until = utc("2026-05-01"), utc("2026-05-02")
    one = Timing(name="one", rule=Cron(expression="@hourly"), timezone="Europe/Berlin")
    two = Timing(name="two", rule=Cron(expression="0  * * * *"), timezone="Europe/Berlin", start=utc("2020-01-01"))
    assert compile_timing(one).expected is compile_timing(two).expected
    found, again = occurrences_between(one, after, until), occurrences_between(two, after, until)
    assert found is not again
    assert all(first is second for first, second in zip(found, again, strict=True))


def test_a_range_asked_with_another_limit_is_computed_again_only_when_more_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planner asks for as many dates as its slice has room for, which differs from schedule to schedule."""
    computed = 0
    compute = Expected._occurrences

    def counted(self: Expected, after: datetime, until: datetime) -> Iterator[Occurrence]:
        nonlocal computed
        computed += 1
        return compute(self, after, until)

    monkeypatch.setattr(Expected, "_occurrences", counted)
    after, until = utc("2031-05-01"), utc("2031-05-02")
    found = [
        [_text(one.logical_date) for one in occurrences_between(berlin("7 * * * *"), after, until, limit)]
        for limit in (3, 2, 30, 3, 40, None, 24, 23)
    ]
    assert [len(dates) for dates in found] == [3, 2, 24, 3, 24, 24, 24, 23]
    assert all(dates == found[2][: len(dates)] for dates in found)
    assert computed == 2


@pytest.mark.parametrize(
    ("timing", "said"),
    [
        (Timing(name="s", rule=Cron(expression="61 * * * *")), "is outside 0-59"),
        (Timing(name="s", rule=Cron(expression="0 * * * *"), timezone="Mars/Olympus"), "is not an IANA zone"),
        (
            Timing(name="s", rule=Cron(expression="0 * * * *"), start=utc("2026-02-01"), end=utc("2026-01-01")),
            "not before end",
        ),
        (Timing(name="s", rule=Cron(expression="0 * * * *"), jitter=timedelta(seconds=-1)), "jitter is negative"),
        (Timing(name="s", rule=Rrule(text="FREQ=DAILY")), "no DTSTART line"),
        (Timing(name="s", rule=At(moments=(utc("2026-01-01"),) * 10_001)), "at most 10000"),
        (Timing(name="s", rule=Every(interval=DAY, anchor=utc("2026-01-01T00:00:00.5"))), "fraction of a second"),
    ],
)
def test_a_timing_that_cannot_be_computed_is_refused_in_one_sentence(timing: Timing, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        compile_timing(timing)


def test_firings_refuses_at_the_call_and_not_at_the_first_date() -> None:
    with pytest.raises(DefinitionError):
        firings("0 0 0 * *", "UTC", utc("2026-01-01"), utc("2026-01-02"))
    with pytest.raises(DefinitionError):
        firings("0 0 * * *", "Europe/Berln", utc("2026-01-01"), utc("2026-01-02"))


def test_offsets_that_are_not_whole_minutes_fire_on_whole_utc_minutes() -> None:
    found = list(firings("0 * * * *", "Africa/Monrovia", utc("1972-01-06T22:00"), utc("1972-01-07T03:00")))
    assert [_text(at) for at in found] == [
        "1972-01-06T22:45Z",
        "1972-01-06T23:45Z",
        "1972-01-07T01:00Z",
        "1972-01-07T02:00Z",
        "1972-01-07T03:00Z",
    ]


def test_a_thousand_rare_rules_cost_no_more_than_a_thousand_frequent_ones() -> None:
    """The bound is loose, since a machine under load is slow for both; scanning years day by day is 100 times over."""

    def seconds(expressions: list[str]) -> float:
        timings = [berlin(expression) for expression in expressions]
        begun = time.process_time()
        for timing in timings:
            next_occurrences(timing, utc("2026-05-05"), 2)
        return time.process_time() - begun

    next_occurrences(berlin("0 0 29 2 *"), utc("2026-05-05"), 3)
    frequent = seconds([f"{n % 60}-59 {n % 24}-23 * * {n % 7}-7" for n in range(1000)])
    rare = seconds([f"{n % 60} {n // 60} 29 2 *" for n in range(1000)])
    assert rare < 4 * frequent + 0.5

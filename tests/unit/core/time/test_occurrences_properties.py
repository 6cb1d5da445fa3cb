"""Laws that hold for every timing and range, tried with generated ones; the examples are the same in every run."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.core.models import (
    At,
    CalendarRule,
    Cron,
    DstRule,
    Every,
    ExcludedDays,
    GapRule,
    RepeatRule,
    Rrule,
    Shift,
    Timing,
)
from scheduler.core.time.localtime import zone_names
from scheduler.core.time.occurrences import next_occurrences, occurrences_between, previous_occurrence
from scheduler.errors import DefinitionError

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "150"))
"""Set it higher for a long look."""

QUIET = settings(
    derandomize=True,
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TICK = timedelta(microseconds=1)
RESTLESS = [
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Antarctica/Troll",
    "America/Caracas", "Asia/Pyongyang", "Pacific/Kwajalein", "America/Santiago", "Asia/Kathmandu", "UTC",
]  # fmt: skip
CHANGES = [
    "2026-03-29T01:00", "2026-10-25T01:00", "2026-03-08T07:00", "2026-11-01T06:00", "2011-12-30T10:00",
    "2016-05-01T07:00", "2018-05-04T15:00", "1993-08-21T12:00", "2026-04-04T15:00", "2026-02-15T02:00",
]  # fmt: skip

minutes = st.sampled_from(["*", "*/7", "*/15", "0", "30", "0,59", "10-40/10", "H"])
hours = st.sampled_from(["*", "*/2", "*/5", "0", "2", "1-3", "2,3", "23", "0-23"])
days = st.sampled_from(["*"] * 8 + ["1", "L", "*/2", "29,30", "H"])
months = st.sampled_from(["*"] * 8 + ["3-11", "2", "dec"])
weekdays = st.sampled_from(["*"] * 8 + ["mon-fri", "0", "*/2", "5L", "1#1"])
crons = st.builds("{} {} {} {} {}".format, minutes, hours, days, months, weekdays).map(
    lambda text: Cron(expression=text)
)
everies = st.builds(
    lambda size, unit, anchor: Every(interval=size * unit, anchor=datetime(2020, 1, 1, tzinfo=UTC) + anchor * unit),
    st.integers(1, 90),
    st.sampled_from([timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)]),
    st.integers(0, 1000),
)
rrules = st.builds(
    "DTSTART:{}T023000\nRRULE:FREQ={};INTERVAL={}{}".format,
    st.sampled_from(["20090131", "20100201", "20200229"]),
    st.sampled_from(["HOURLY", "DAILY", "WEEKLY", "MONTHLY"]),
    st.integers(1, 9),
    st.sampled_from(["", ";BYDAY=SU,MO", ";BYMONTH=3,10", ";COUNT=300", ";UNTIL=20261101T000000", ";BYHOUR=1,2"]),
).map(lambda text: Rrule(text=text))
around = st.builds(
    lambda change, seconds: datetime.fromisoformat(change).replace(tzinfo=UTC) + timedelta(seconds=seconds),
    st.sampled_from(CHANGES),
    st.integers(-200_000, 200_000),
)
ats = st.lists(around | around.map(lambda at: at.replace(tzinfo=None, microsecond=0)), max_size=8).map(
    lambda moments: At(moments=tuple(moments))
)
calendars = st.none() | st.builds(
    lambda closed, single, shift: CalendarRule(
        excluded=(ExcludedDays(name="closed", weekdays=closed), ExcludedDays(name="single", dates=single)), shift=shift
    ),
    st.frozensets(st.integers(0, 6), max_size=3),
    st.frozensets(st.dates(date(2026, 3, 25), date(2026, 4, 2)), max_size=4),
    st.sampled_from(Shift),
)
timings = st.builds(
    Timing,
    name=st.sampled_from(["ingest", "report"]),
    rule=st.one_of(crons, crons, everies, rrules, ats),
    timezone=st.sampled_from(RESTLESS) | st.sampled_from(sorted(zone_names())),
    dst=st.builds(DstRule, gap=st.sampled_from(GapRule), overlap=st.sampled_from(RepeatRule)),
    start=st.one_of(st.none(), st.none(), st.none(), around),
    end=st.none(),
    calendar=calendars,
    jitter=st.sampled_from([timedelta(0), timedelta(minutes=3)]),
)
spans = st.builds(
    lambda size, more: size + timedelta(seconds=more),
    st.sampled_from([timedelta(hours=2), timedelta(days=1), timedelta(days=3), timedelta(days=10)]),
    st.integers(0, 5_000),
)


@QUIET
@given(timings, around, spans)
def test_dates_strictly_increase_within_the_range_and_join_into_intervals(
    timing: Timing, after: datetime, span: timedelta
) -> None:
    found = occurrences_between(timing, after, after + span)
    assert all(after < one.logical_date <= after + span for one in found)
    assert all(one.logical_date < two.logical_date for one, two in pairwise(found))
    assert all(two.interval_start == one.logical_date for one, two in pairwise(found))
    assert all(one.interval_start <= one.logical_date for one in found)
    assert all(timing.start is None or one.logical_date >= timing.start for one in found)


@QUIET
@given(timings, around, spans, st.floats(0, 1))
def test_splitting_a_range_anywhere_changes_nothing(
    timing: Timing, after: datetime, span: timedelta, share: float
) -> None:
    middle = after + share * span
    whole = occurrences_between(timing, after, after + span)
    assert whole == occurrences_between(timing, after, middle) + occurrences_between(timing, middle, after + span)
    for one in whole[:1]:
        at = one.logical_date
        assert occurrences_between(timing, at - TICK, at) == [one]
        assert one not in occurrences_between(timing, at, after + span)


@QUIET
@given(timings, around)
def test_one_call_equals_stepping_forward_and_back(timing: Timing, after: datetime) -> None:
    found = next_occurrences(timing, after, 6, after + timedelta(days=900))
    stepped, at = [], after
    for _ in found:
        (one,) = next_occurrences(timing, at, 1)
        stepped.append(one)
        at = one.logical_date
    assert stepped == found
    for one, two in pairwise(found):
        assert previous_occurrence(timing, two.logical_date) == one


@QUIET
@given(timings, around, spans)
def test_walls_are_never_used_twice(timing: Timing, after: datetime, span: timedelta) -> None:
    """An expected date is settled if its instant or its wall is, so two dates must not share a wall."""
    found = [one.wall for one in occurrences_between(timing, after, after + span) if one.wall is not None]
    assert len({(wall, wall.fold) for wall in found}) == len(found)


@QUIET
@given(timings, around, spans)
def test_the_dst_rule_decides_only_what_happens_at_a_change(timing: Timing, after: datetime, span: timedelta) -> None:
    """In a zone whose clock never changes, every rule fires the same whatever ``dst`` says."""
    rules = (DstRule(), DstRule(gap=GapRule.SKIP, overlap=RepeatRule.LAST), DstRule(overlap=RepeatRule.BOTH))
    quiet = [Timing(name=timing.name, rule=timing.rule, timezone="Asia/Kathmandu", dst=dst) for dst in rules]
    results = [occurrences_between(one, after, after + span / 4) for one in quiet]
    assert all(result == results[0] for result in results)


FRAGMENTS = [
    "*", "?", "L", "W", "R", "H", "5L", "1#2", "/", "-", ",", "#", "(", ")", "@", "@daily", "@every", "0", "1", "7",
    "59", "60", "99999", "22-2", "1-5/2", "mon", "SUN", "feb", "*/", "*/0", "H(", "H(1-2)", "\u00a0", "\n",
    "DTSTART:", "RRULE:", "RDATE", "EXDATE", ";", "=", ":", "FREQ=DAILY", "FREQ=HOURLY", "INTERVAL=", "COUNT=",
    "UNTIL=", "BYDAY=", "MO", "-1FR", "BYMONTHDAY=31", "BYSETPOS=2", "20260101", "20260101T020000", "20260101T020000Z",
    "99991231", "00010101T000000", "TZID=UTC", "VALUE=DATE", "INTERVAL=7", "COUNT=3", "UNTIL=99991231T000000Z",
    "BYHOUR=1,2", "WKST=SU", "BYWEEKNO=53",
]  # fmt: skip
fragments = st.sampled_from(FRAGMENTS)
glued = st.builds(lambda parts, glue: glue.join(parts), st.lists(fragments, max_size=14), st.sampled_from(" \n;,"))
texts = st.text(max_size=40) | glued


@QUIET
@given(texts, st.sampled_from(["cron", "rrule", "zone"]))
def test_any_text_is_either_a_rule_or_refused_in_a_short_sentence(text: str, kind: str) -> None:
    rule = Rrule(text=text) if kind == "rrule" else Cron(expression=text if kind == "cron" else "0 0 * * *")
    timing = Timing(name="s", rule=rule, timezone=text if kind == "zone" else "Pacific/Apia")
    try:
        found = next_occurrences(timing, datetime(2026, 1, 1, tzinfo=UTC), 3)
    except DefinitionError as error:
        assert 0 < len(str(error)) < 500
    else:
        assert len(found) <= 3


@QUIET
@given(st.lists(fragments, max_size=6), st.sampled_from(["DAILY", "HOURLY", "MONTHLY", "WEEKLY", "YEARLY"]))
def test_any_recurrence_that_begins_well_is_a_rule_or_refused(parts: list[str], frequency: str) -> None:
    text = f"DTSTART:20260131T020000\nRRULE:FREQ={frequency};" + ";".join(parts)
    timing = Timing(name="s", rule=Rrule(text=text), timezone="Europe/Berlin")
    try:
        assert len(next_occurrences(timing, datetime(2026, 1, 1, tzinfo=UTC), 3)) <= 3
        previous_occurrence(timing, datetime(2027, 1, 1, tzinfo=UTC))
    except DefinitionError as error:
        assert 0 < len(str(error)) < 500

"""Recurrence rules: examples of RFC 5545, agreement with dateutil, local time, and texts that must not hang."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

import pytest
from dateutil.rrule import rrulestr

from scheduler.core.models import DstRule, GapRule, Rrule, Timing
from scheduler.core.time.occurrences import (
    compile_timing,
    never_fires,
    next_occurrences,
    occurrences_between,
    previous_occurrence,
)
from scheduler.errors import DefinitionError


def rule(text: str, timezone: str = "America/New_York", dst: DstRule | None = None) -> Timing:
    return Timing(name="s", rule=Rrule(text=text), timezone=timezone, dst=dst or DstRule())


def walls(text: str, count: int = 50, since: str = "1990-01-01") -> list[str]:
    found = next_occurrences(rule(text), datetime.fromisoformat(since).replace(tzinfo=UTC), count)
    return [f"{one.wall:%y%m%d}" for one in found if one.wall]


@pytest.mark.parametrize(
    ("start", "text", "expected"),
    [
        ("19970902T090000", "FREQ=DAILY;COUNT=3", "970902 970903 970904"),
        ("19970902T090000", "FREQ=DAILY;INTERVAL=10;COUNT=5", "970902 970912 970922 971002 971012"),
        ("19970902T090000", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;WKST=SU;BYDAY=TU,TH", "970902 970904 970916 970918"),
        ("19970805T090000", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "970805 970810 970819 970824"),
        ("19970805T090000", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "970805 970817 970819 970831"),
        ("19970905T090000", "FREQ=MONTHLY;COUNT=4;BYDAY=1FR", "970905 971003 971107 971205"),
        ("19970907T090000", "FREQ=MONTHLY;INTERVAL=2;COUNT=4;BYDAY=1SU,-1SU", "970907 970928 971102 971130"),
        ("19970922T090000", "FREQ=MONTHLY;COUNT=4;BYDAY=-2MO", "970922 971020 971117 971222"),
        ("19970928T090000", "FREQ=MONTHLY;BYMONTHDAY=-3;COUNT=4", "970928 971029 971128 971229"),
        ("19970930T090000", "FREQ=MONTHLY;COUNT=5;BYMONTHDAY=1,-1", "970930 971001 971031 971101 971130"),
        ("19970610T090000", "FREQ=YEARLY;COUNT=4;BYMONTH=6,7", "970610 970710 980610 980710"),
        ("19970101T090000", "FREQ=YEARLY;INTERVAL=3;COUNT=4;BYYEARDAY=1,100,200", "970101 970410 970719 000101"),
        ("19970519T090000", "FREQ=YEARLY;BYDAY=20MO;COUNT=3", "970519 980518 990517"),
        ("19970512T090000", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO;COUNT=3", "970512 980511 990517"),
        ("19970902T090000", "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;COUNT=4", "980213 980313 981113 990813"),
        ("19961105T090000", "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8;COUNT=3",
         "961105 001107 041102"),
        ("19970904T090000", "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "970904 971007 971106"),
        ("19970929T090000", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2;COUNT=4", "970929 971030 971127 971230"),
        ("19970131T090000", "FREQ=MONTHLY;COUNT=4", "970131 970331 970531 970731"),
        ("19960229T090000", "FREQ=YEARLY;COUNT=3", "960229 000229 040229"),
        ("19970902T090000", "FREQ=DAILY;UNTIL=19970904", "970902 970903 970904"),
        ("19970902T090000", "FREQ=DAILY;UNTIL=19970904T085959", "970902 970903"),
        ("19970902T090000", "FREQ=DAILY;UNTIL=19970904T130000Z", "970902 970903 970904"),
        ("19970902T090000", "FREQ=DAILY;UNTIL=19970904T125959Z", "970902 970903"),
    ],
)  # fmt: skip
def test_examples_of_the_rfc(start: str, text: str, expected: str) -> None:
    assert walls(f"DTSTART;TZID=America/New_York:{start}\nRRULE:{text}") == expected.split()


def test_single_dates_are_added_and_left_out() -> None:
    text = (
        "DTSTART:20260105T090000\nRRULE:FREQ=DAILY;COUNT=5\n"
        "RDATE:20260110T120000,20251231\nEXDATE:20260106T090000\nEXDATE;VALUE=DATE:20260108\n"
    )
    found = next_occurrences(rule(text), datetime(2020, 1, 1, tzinfo=UTC), 20)
    assert [f"{one.wall:%y%m%dT%H}" for one in found if one.wall] == [
        "251231T00",
        "260105T09",
        "260107T09",
        "260109T09",
        "260110T12",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "DTSTART:20260105T090000\r\nRRULE:FREQ=DAILY",
        "dtstart:20260105T090000\nrrule:freq=daily",
        "DTSTART:20260105T090000\nFREQ=DAILY",
        "DTSTART:20260105T090000\nRRULE:FREQ=\n DAILY",
        "RRULE:FREQ=DAILY;\n\nDTSTART;VALUE=DATE-TIME:20260105T090000\n",
    ],
)
def test_ways_to_write_one_rule(text: str) -> None:
    assert walls(text, 2) == ["260105", "260106"]


def test_daily_rules_are_fixed_and_hourly_ones_wild() -> None:
    def dates(text: str, after: str, until: str, dst: DstRule | None = None) -> list[str]:
        ends = (datetime.fromisoformat(one).replace(tzinfo=UTC) for one in (after, until))
        return [f"{one.logical_date:%dT%H:%M}" for one in occurrences_between(rule(text, "Europe/Berlin", dst), *ends)]

    daily = "DTSTART:20260101T023000\nRRULE:FREQ=DAILY"
    assert dates(daily, "2026-03-28T12:00", "2026-03-30T12:00") == ["29T01:00", "30T00:30"]
    assert dates(daily, "2026-03-28T12:00", "2026-03-30T12:00", DstRule(gap=GapRule.SKIP)) == ["30T00:30"]
    assert dates(daily, "2026-10-24T12:00", "2026-10-26T12:00") == ["25T00:30", "26T01:30"]
    hourly = "DTSTART:20260101T003000\nRRULE:FREQ=HOURLY"
    assert dates(hourly, "2026-03-29T00:00", "2026-03-29T02:00") == ["29T00:30", "29T01:30"]
    assert dates(hourly, "2026-10-25T00:00", "2026-10-25T03:00") == ["25T00:30", "25T01:30", "25T02:30"]
    second = "DTSTART:20260101T003000\nRRULE:FREQ=HOURLY;INTERVAL=2"
    assert dates(second, "2026-10-24T22:00", "2026-10-25T04:00") == ["24T22:30", "25T00:30", "25T01:30", "25T03:30"]


def test_drawn_rules_name_the_dates_dateutil_names() -> None:
    """Only rules dateutil can be trusted with: it never returns from some that never match, starts the first week of
    BYSETPOS at DTSTART, and gives days before week 1 a wrong number when weeks begin on Sunday."""
    chance = random.Random(5545)
    after, until = datetime.fromisoformat("2024-03-05T00:07"), datetime.fromisoformat("2025-06-01")
    for _ in range(120):
        text = _drawn(chance)
        expected = rrulestr(text).between(after, until, inc=True)
        found = occurrences_between(rule(text, "UTC"), after.replace(tzinfo=UTC), until.replace(tzinfo=UTC))
        assert [one.wall for one in found] == expected, text


def _drawn(chance: random.Random) -> str:
    frequency = chance.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"])
    parts = [f"FREQ={frequency}", f"INTERVAL={chance.choice([1, 1, 2, 3, 5, 13])}"]
    wants = {
        "COUNT": (0.3, ["1", "5", "60", "300"]),
        "BYMONTH": (0.3, ["1", "2", "2,7,12"]),
        "BYDAY": (0.4, ["MO", "TU,TH", "SA,SU"] + ["1MO", "-1FR,2TU"] * (frequency in ("MONTHLY", "YEARLY"))),
        "BYMONTHDAY": (0.2 if frequency != "WEEKLY" else 0, ["1,8,15,22", "15,-1", "2,9,16,23,30,-1"]),
        "BYHOUR": (0.3 if frequency != "HOURLY" else 0, ["3", "0,12,23"]),
        "BYMINUTE": (0.3, ["3", "0,30"]),
        "WKST": (0.3, ["SU", "WE"]),
    }
    parts += [f"{name}={chance.choice(values)}" for name, (share, values) in wants.items() if chance.random() < share]
    year, month, day, hour = (
        chance.choice([2019, 2024]),
        chance.randint(1, 12),
        chance.randint(1, 28),
        chance.randint(0, 23),
    )
    return f"DTSTART:{year}{month:02}{day:02}T{hour:02}3000\nRRULE:{';'.join(parts)}"


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30,31",
        "FREQ=HOURLY;BYYEARDAY=366;BYMONTH=1",
        "FREQ=HOURLY;INTERVAL=24;BYHOUR=3",
        "FREQ=DAILY;BYDAY=MO;BYSETPOS=2",
        "FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6",
        "FREQ=YEARLY;COUNT=10000;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;COUNT=10000;BYMONTH=11;BYMONTHDAY=31;BYSETPOS=300",
        "FREQ=DAILY;UNTIL=20191231",
    ],
)
def test_a_rule_that_never_matches_is_answered_and_does_not_hang(text: str) -> None:
    timing = rule(f"DTSTART:20200101T000000\nRRULE:{text}")
    begun = time.process_time()
    assert never_fires(timing)
    assert next_occurrences(timing, datetime(2026, 1, 1, tzinfo=UTC), 1) == []
    assert previous_occurrence(timing, datetime(2026, 1, 1, tzinfo=UTC)) is None
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;INTERVAL=10000",
        "FREQ=YEARLY;COUNT=10000;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU",
        "FREQ=HOURLY;COUNT=10000;INTERVAL=10000",
        f"FREQ=DAILY;BYHOUR={','.join(map(str, range(24)))};BYMINUTE={','.join(map(str, range(60)))}",
        f"FREQ=YEARLY;BYYEARDAY={','.join(map(str, range(1, 367)))};BYSETPOS=366;BYHOUR=1,2",
    ],
)
def test_extreme_rules_are_answered_soon(text: str) -> None:
    timing = rule(f"DTSTART:20200101T000000\nRRULE:{text}")
    begun = time.process_time()
    next_occurrences(timing, datetime(2026, 1, 1, tzinfo=UTC), 3)
    assert previous_occurrence(timing, datetime(2090, 1, 1, tzinfo=UTC)) is not None
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RRULE:FREQ=DAILY", "no DTSTART line"),
        ("DTSTART:20260101T000000", "no RRULE line"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY\nRRULE:FREQ=DAILY", "2 RRULE lines"),
        ("DTSTART:20260101T000000Z\nRRULE:FREQ=DAILY", "write its local time without Z"),
        ("DTSTART;TZID=Europe/Paris:20260101T000000\nRRULE:FREQ=DAILY", 'leave TZID out and set "timezone:"'),
        ("DTSTART:2026-01-01\nRRULE:FREQ=DAILY", "write local time as 20260105T090000"),
        ("DTSTART:20260230T000000\nRRULE:FREQ=DAILY", "is not a date"),
        ("DTSTART:00010101T000000\nRRULE:FREQ=DAILY", "outside the years 1900 to 2300"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY", 'write "every:" or "cron:"'),
        ("DTSTART:20260101T000000\nRRULE:FREQ=SECONDLY", "finer than hourly"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=OFTEN", "write one of YEARLY"),
        ("DTSTART:20260101T000000\nRRULE:INTERVAL=2", "FREQ"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;COUNT=3;UNTIL=20270101", "both COUNT and UNTIL"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;COUNT=10001", "a number from 1 to 10000"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;INTERVAL=0", "a number from 1 to 10000"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;INTERVAL=99999999999999", "a number from 1 to 10000"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYDAY=1MO", 'write "MO"'),
        ("DTSTART:20260101T000000\nRRULE:FREQ=WEEKLY;BYDAY=FUNDAY", "write MO, TU"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=WEEKLY;BYMONTHDAY=3", "no meaning with FREQ=WEEKLY"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=YEARLY;BYEASTER=1", "is not a part of an RRULE"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;FREQ=DAILY", "stands twice"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=24", "write 0 to 23"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYSECOND=1,2", "finer than a minute"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYSETPOS=0", "write 1 to 366 or -366 to -1"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY", '"EXRULE" is not supported'),
        ("DTSTART:20260101\nRRULE:FREQ=DAILY\nRDATE;VALUE=PERIOD:20260101T000000/PT1H", "dates or local times only"),
        ("every day", "has no name"),
        ("", "no DTSTART line"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY\n" + "RDATE:20260101\n" * 2000, "at most 16384"),
    ],
)  # fmt: skip
def test_what_is_refused_comes_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(DefinitionError) as error:
        compile_timing(rule(text))
    assert said in str(error.value)

"""Zones by name, stretches of constant offset, and single local times as instants."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime

import pytest

from scheduler.core.models import RepeatRule
from scheduler.core.time.localtime import instant_of, local_clock, minute_of, tz_version, wall_of, zone, zone_names
from scheduler.errors import DefinitionError


def test_zone_data_comes_from_the_package_only() -> None:
    assert zoneinfo.TZPATH == ()
    assert tz_version()[:2] == "20"
    assert zone("Europe/Berlin").key == "Europe/Berlin"


def test_every_listed_zone_can_be_loaded() -> None:
    assert len(zone_names()) > 500
    assert {zone(name).key for name in zone_names()} == zone_names()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", 'did you mean "Europe/Berlin"?'),
        ("europe/berlin", 'did you mean "Europe/Berlin"?'),
        (" Europe/Berlin", 'did you mean "Europe/Berlin"?'),
        ("America/New York", 'did you mean "America/New_York"?'),
        ("Tokyo", 'did you mean "Asia/Tokyo"?'),
        ("utc", 'did you mean "UTC"?'),
        ("", 'write a name such as "Europe/Berlin"'),
        ("localtime", "is not an IANA zone"),
        ("Factory", "is not an IANA zone"),
        ("/etc/localtime", "is not an IANA zone"),
        ("../../etc/passwd", "is not an IANA zone"),
        ("Europe", "is not an IANA zone"),
        ("UTC+3", "is not an IANA zone"),
        ("+02:00", "is not an IANA zone"),
        ("Europe/Berlin\x00", "is not an IANA zone"),
    ],
)
def test_what_is_not_a_zone_is_refused_with_the_nearest_name(name: str, hint: str) -> None:
    with pytest.raises(DefinitionError) as error:
        zone(name)
    assert hint in str(error.value)


def test_a_year_is_cut_at_its_changes_and_at_the_repeated_hour() -> None:
    found = [
        (
            f"{wall_of(stretch.start):%m-%dT%H:%M}",
            stretch.offset,
            stretch.skipped,
            stretch.shown_before,
            stretch.shown_again,
        )
        for stretch in local_clock("Europe/Berlin").stretches(2026)
    ]
    assert found == [
        ("01-01T00:00", 60, 0, False, False),
        ("03-29T01:00", 120, 60, False, False),
        ("10-25T00:00", 120, 0, False, True),
        ("10-25T01:00", 60, 0, True, False),
        ("10-25T02:00", 60, 0, False, False),
    ]


def test_stretches_of_a_year_leave_no_hole() -> None:
    for name in ("Pacific/Apia", "America/Caracas", "Africa/Casablanca", "Antarctica/Troll", "UTC", "Africa/Monrovia"):
        for year in (1971, 1972, 2011, 2016, 2026):
            stretches = local_clock(name).stretches(year)
            assert [one.end for one in stretches[:-1]] == [one.start for one in stretches[1:]]
            assert wall_of(stretches[0].start) == datetime.fromisoformat(f"{year}-01-01")
            assert wall_of(stretches[-1].end) == datetime.fromisoformat(f"{year + 1}-01-01")


def test_a_whole_skipped_day_is_one_gap() -> None:
    (change,) = local_clock("Pacific/Apia").changes(
        minute_of(datetime(2011, 12, 1, tzinfo=UTC)), minute_of(datetime(2012, 1, 10, tzinfo=UTC))
    )
    assert (wall_of(change.start), change.skipped) == (datetime.fromisoformat("2011-12-30T10:00"), 1440)


@pytest.mark.parametrize(
    ("timezone", "wall", "overlap", "expected"),
    [
        ("Europe/Berlin", "2026-01-15T09:00", RepeatRule.FIRST, "2026-01-15T08:00Z"),
        ("Europe/Berlin", "2026-03-29T02:30", RepeatRule.FIRST, "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-10-25T02:30", RepeatRule.FIRST, "2026-10-25T00:30Z"),
        ("Europe/Berlin", "2026-10-25T02:30", RepeatRule.LAST, "2026-10-25T01:30Z"),
        ("Europe/Berlin", "2026-10-25T02:30", RepeatRule.BOTH, "2026-10-25T00:30Z"),
        ("Pacific/Apia", "2011-12-30T12:00", RepeatRule.FIRST, "2011-12-30T10:00Z"),
        ("Asia/Kathmandu", "2026-01-01T00:00:30", RepeatRule.FIRST, "2025-12-31T18:15:30Z"),
        ("UTC", "2026-01-01T00:00", RepeatRule.FIRST, "2026-01-01T00:00Z"),
    ],
)
def test_one_local_time_is_one_instant(timezone: str, wall: str, overlap: RepeatRule, expected: str) -> None:
    found = instant_of(local_clock(timezone), datetime.fromisoformat(wall), overlap)
    assert found == datetime.fromisoformat(expected)

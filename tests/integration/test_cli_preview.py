"""What ``sched preview`` and ``sched lint`` tell a person about local time, without a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import sched, write_definitions


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever asks for a database is answered by nobody."""
    monkeypatch.setenv("SCHED_DSN", "host=127.0.0.1 port=1 dbname=nowhere")
    monkeypatch.chdir(tmp_path)


def test_an_expression_is_explained_with_local_time_offset_utc_and_notes() -> None:
    asked = ("--cron", "30 1 * * *", "--timezone", "America/New_York", "--from", "2026-10-31", "--count", "3")
    assert sched("preview", *asked).out.splitlines() == [
        "at 01:30, every day (America/New_York)",
        "LOCAL TIME               OFFSET     UTC                   NOTE",
        "Sat 2026-10-31 01:30:00  -0400 EDT  2026-10-31T05:30:00Z",
        "Sun 2026-11-01 01:30:00  -0400 EDT  2026-11-01T05:30:00Z  clocks go back: 01:30 happens twice, fires once",
        "Mon 2026-11-02 01:30:00  -0500 EST  2026-11-02T06:30:00Z",
    ]


def test_a_skipped_time_and_both_passes_of_a_wild_rule_are_noted() -> None:
    gap = sched("preview", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2026-03-29", "-n", "1")
    assert gap.out.splitlines()[2] == (
        "Sun 2026-03-29 03:00:00  +0200 CEST  2026-03-29T01:00:00Z  "
        "clocks go forward: 02:30 does not exist, fires at 03:00"
    )
    twice = sched(
        "preview", "--cron", "30 * * * *", "--timezone", "Europe/Berlin", "--from", "2026-10-25T02:00+02:00", "-n", "2"
    )
    assert [line.partition("Z  ")[2] for line in twice.out.splitlines()[2:]] == [
        "clocks go back: 02:30 happens twice, fires both times (first time)",
        "clocks go back: 02:30 happens twice, fires both times (second time)",
    ]


def test_schedules_of_a_folder_show_calendars_and_the_date_they_stand_for(tmp_path: Path) -> None:
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules" / "a.yaml").write_text(
        "version: 1\ncalendars: {weekend: {weekdays: [sat, sun]}}\nschedules:\n"
        '  s: {cron: "0 9 * * *", timezone: Europe/Berlin, job: x, calendar: {except: weekend, shift: next}}\n'
    )
    ended = sched("preview", "s", "--from", "2026-05-02", "--count", "1")
    assert ended.out.splitlines()[:3] == [
        "s: at 09:00, every day (Europe/Berlin)",
        "LOCAL TIME               OFFSET      UTC                   LOGICAL DATE          NOTE",
        "Mon 2026-05-04 09:00:00  +0200 CEST  2026-05-04T07:00:00Z  2026-05-02T07:00:00Z  "
        "2026-05-02 is excluded by weekend: due on 2026-05-04 09:00 instead",
    ]


def test_lint_warns_with_places_dates_and_proposals(tmp_path: Path) -> None:
    lines = '  dst: {cron: "30 2 * * *", timezone: Europe/Berlin, job: x}\n  odd: {cron: "0 2-2 1,15 * 5", job: x}\n'
    lines += "".join(f'  s{number}: {{cron: "0 3 * * *", job: x}}\n' for number in range(25))
    folder = write_definitions(tmp_path / "files", lines)
    ended = sched("lint", str(folder))
    assert ended.code == 0
    warnings = ended.err.splitlines()
    assert len(warnings) == 5
    assert all(line.startswith(f"warning: {folder}/schedules.yaml:") for line in warnings)
    assert "dst.cron: the clock in Europe/Berlin skips 02:30 on 20" in warnings[0]
    assert "dst.cron: the clock in Europe/Berlin shows 02:30 twice on 20" in warnings[1]
    assert 'odd.cron: day-of-month "1,15" and day-of-week "5" are joined by OR' in warnings[2]
    assert 'odd.cron: croniter, and tools that use it, find other dates: it takes "2-2" for "*"' in warnings[3]
    assert "s0.cron: 25 schedules are due in the same minute" in warnings[4]
    assert 'give them jitter: 5m, or write H for the minute, like cron: "H 3 * * *"' in warnings[4]

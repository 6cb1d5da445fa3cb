"""A short outage caught up by a real ticker. The long ones: ``python -m tests.acceptance.campaign outages``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.outages import SHORT, recover

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


def test_a_ticker_decides_each_date_of_an_outage_by_its_policy(database: str, tmp_path: Path) -> None:
    report = recover(database, tmp_path, SHORT)
    print("", *report.lines(), sep="\n")
    assert report.faults == []
    assert report.dates >= 3 * 3 * 1440
    assert report.megabytes < 300

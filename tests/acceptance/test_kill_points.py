"""kill -9 at named points inside and between transactions, two tickers alive: nothing is lost, nothing is made twice.

A short version of ``python -m tests.acceptance.campaign kills``; the seed is printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.kill_cycles import POINTS, choose, run_cycles

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

SEED = 4
CYCLES = 28


def test_killed_anywhere_no_date_is_lost_or_doubled(database: str, tmp_path: Path) -> None:
    cycles = choose(SEED, CYCLES)
    report = run_cycles(database, tmp_path, cycles, SEED)
    print("", *report.lines(), sep="\n")
    assert {cycle.kind for cycle in cycles} == set(POINTS)
    assert (report.lost, report.doubled, report.wrong) == (0, 0, {})
    assert report.dates > 96 * CYCLES // len(POINTS)

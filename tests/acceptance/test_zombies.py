"""Workers stopped at named points for longer than their lease, and continued: nothing that they write then counts.

A short version of ``python -m tests.acceptance.campaign zombies``; the seed is printed. WK-01 of the cases, step by
step, is in ``test_worker_death``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.zombie_cycles import POINTS, Cycle, choose, run_cycles
from tests.support.database import connect
from tests.support.wrong_design import replace_in

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

SEED = 5
CYCLES = 12


def test_a_worker_back_from_the_dead_changes_no_row_wherever_it_was_stopped(database: str, tmp_path: Path) -> None:
    report = run_cycles(database, tmp_path, choose(SEED, CYCLES), SEED, workers=6)
    print("", *report.lines(), sep="\n")
    assert report.reached == Counter(dict.fromkeys(POINTS, CYCLES // len(POINTS)))
    assert (report.stale_writes, report.faults) == (0, {})


@pytest.mark.parametrize(
    ("function", "point"),
    [("complete", "before settle"), ("heartbeat", "in heartbeat")],
)
def test_a_stale_write_is_found_when_the_token_is_not_asked_for(
    database: str, tmp_path: Path, function: str, point: str
) -> None:
    """The state and the expiry alone do not help: the job is running, and its lease is good, but somebody else's.

    A second attempt row with the stale token would be refused too; that is switched off as well.
    """
    with connect(database) as db:
        db.execute("alter table sched.attempts drop constraint attempts_lease_token")
        replace_in(db, function, " and j.lease_token = e.token", "")
    cycle = Cycle(0, point, "succeeds", "beside the next attempt", "zombie.plain")
    report = run_cycles(database, tmp_path, [cycle], SEED, workers=3)
    assert report.stale_writes > 0

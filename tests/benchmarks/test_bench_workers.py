"""The benchmark of many workers, once and short: every job once, and no transaction open while a handler runs.

How close it comes to the ideal is printed and not judged: ``make bench-workers``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.bench_workers import faults, measure, sampling
from tests.support.build import claim_all
from tests.support.database import connect
from tests.support.leases import add
from tests.support.wait import wait_for

pytestmark = pytest.mark.benchmark


def test_four_workers_run_every_job_once_and_hold_no_transaction_meanwhile(database: str, tmp_path: Path) -> None:
    run = measure(database, tmp_path, workers=4, jobs=60, seconds=0.2)
    print(f"\n{run.jobs} jobs on {run.workers} workers: {run.efficiency:.0%} of the ideal, {run.samples} looks")
    assert run.samples > 20
    assert faults(run) == []


def test_the_sampler_sees_a_session_that_is_idle_in_a_transaction_while_a_job_runs(database: str) -> None:
    with connect(database) as db, connect(database, autocommit=False) as idle, sampling(database) as sampler:
        add(db)
        assert len(claim_all(db)) == 1
        wait_for(lambda: sampler.samples >= 10, 20, "some looks")
        assert sampler.found == 0
        idle.execute("select 1")
        wait_for(lambda: sampler.found >= 10, 20, "the open transaction to be seen")

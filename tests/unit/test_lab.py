"""The small pure parts of the lab."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduler.errors import StorageError
from scheduler.lab.backoff import expected_seconds
from scheduler.lab.findings import percentile
from scheduler.lab.plan import scan_below_lock
from scheduler.lab.schema import in_lab
from scheduler.lab.settings import LabSettings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create schema sched;", "create schema sched_lab;"),
        ("select sched.claim(null)", "select sched_lab.claim(null)"),
        ("select 'sched.jobs'::regclass", "select 'sched_lab.jobs'::regclass"),
        ("select from sched_lab.jobs", "select from sched_lab.jobs"),
        ("insert into sched.events (actor) values ('sched')", "insert into sched_lab.events (actor) values ('sched')"),
        ("select pg_notify('sched_jobs', 'x')", "select pg_notify('sched_jobs', 'x')"),
    ],
)
def test_statements_of_the_product_name_the_labs_schema(text: str, expected: str) -> None:
    assert in_lab(text) == expected


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7.0], 0.99, 7.0),
        ([3.0, 1.0, 2.0, 4.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.99, 99),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


@pytest.mark.parametrize(("attempt", "expected"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (9, 3.0)])
def test_the_expected_delay_doubles_up_to_the_maximum(attempt: int, expected: float) -> None:
    settings = LabSettings(backoff_base=timedelta(seconds=0.5), backoff_max=timedelta(seconds=3))
    assert expected_seconds(attempt, settings) == expected


def test_a_plan_without_a_lock_is_not_understood() -> None:
    with pytest.raises(StorageError, match="locks no rows"):
        scan_below_lock({"Node Type": "Seq Scan", "Relation Name": "jobs"})

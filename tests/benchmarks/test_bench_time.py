"""The benchmark of dates, once and short, so that it keeps working and the promised speed keeps holding."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.benchmarks.bench_time import measure


@pytest.mark.benchmark
@pytest.mark.parametrize(("timezone", "bound"), [("UTC", 3_000), ("Europe/Berlin", 8_000)])
def test_a_minutely_rule_costs_no_more_than_promised(timezone: str, bound: int) -> None:
    figure = measure("* * * * *", timezone, timedelta(days=60), 500)
    print(figure)
    assert figure.firings <= bound

"""Loading definition files: the example of the design, defaults, calendars, and what is refused, with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from scheduler.core.models import (
    Catchup,
    CatchupPolicy,
    Cron,
    Definition,
    DefinitionSet,
    DstRule,
    FinalFailurePolicy,
    GapRule,
    Limit,
    OverlapPolicy,
    RepeatRule,
    RetryPolicy,
    Shift,
)
from scheduler.errors import DefinitionError
from scheduler.services.definitions import load_definitions

TODAY = date(2026, 11, 30)

Load = Callable[..., DefinitionSet]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes files below ``schedules/`` and loads that folder by its relative name."""
    monkeypatch.chdir(tmp_path)
    folder = Path("schedules")
    folder.mkdir()

    def write_and_load(text: str | None = None, **files: str) -> DefinitionSet:
        for name, content in {**({"etl": text} if text is not None else {}), **files}.items():
            (folder / f"{name}.yaml").write_bytes(content.encode())
        return load_definitions(folder, today=TODAY)

    return write_and_load


def one(load: Load, fields: str, head: str = "") -> Definition:
    """The single schedule ``a`` with ``fields``, one on each line."""
    return load(document(fields, head)).schedules["a"]


def document(fields: str, head: str = "") -> str:
    lines = list(fields.strip("\n").splitlines())
    return f"version: 1\n{head}schedules:\n  a:\n" + "".join(f"    {line}\n" for line in lines)


def refused(load: Load, text: str | None = None, **files: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        load(text, **files)
    return [str(problem) for problem in caught.value.problems]


FULL = """\
version: 1
owner: data-team
defaults: {timezone: Europe/Berlin, queue: default, retry: {max_attempts: 5}}
calendars:
  de-holidays: {holidays: DE-BE}
limits:
  openai: {concurrency: 4}
schedules:
  daily-ingest:
    description: Pull yesterday's orders
    cron: "0 2 * * *"
    timezone: Europe/Berlin
    start: 2026-01-01
    end: null
    dst: {gap: run_after, overlap: first}
    calendar: {except: de-holidays, shift: skip}
    jitter: 5m
    job: ingest.daily
    payload: {source: orders}
    idempotency_key: "{schedule}:{local_date}"
    queue: default
    priority: 100
    limit: openai
    timeout: 30m
    retry: {max_attempts: 5, base: 10s, max: 1h, jitter: 0.2}
    catchup: {policy: latest, grace: 2m, max_age: 7d}
    overlap: queue
    finish_by: 4h
    on_final_failure: continue
    renamed_from: ingest
    tags: [etl]
"""


def test_the_example_of_the_design_loads_field_by_field(load: Load) -> None:
    loaded = load(FULL)
    definition = loaded.schedules["daily-ingest"]
    timing = definition.timing
    assert timing.calendar is not None
    assert replace(definition, timing=replace(timing, calendar=None)) == Definition(
        name="daily-ingest",
        owner="data-team",
        description="Pull yesterday's orders",
        timing=replace(
            timing,
            name="daily-ingest",
            rule=Cron(expression="0 2 * * *"),
            timezone="Europe/Berlin",
            dst=DstRule(gap=GapRule.RUN_AFTER, overlap=RepeatRule.FIRST),
            start=datetime(2025, 12, 31, 23, 0, tzinfo=UTC),
            end=None,
            calendar=None,
            jitter=timedelta(minutes=5),
        ),
        job_type="ingest.daily",
        payload={"source": "orders"},
        idempotency_key="{schedule}:{local_date}",
        queue="default",
        priority=100,
        limit="openai",
        timeout=timedelta(minutes=30),
        retry=RetryPolicy(max_attempts=5, base=timedelta(seconds=10), max_delay=timedelta(hours=1), jitter=0.2),
        catchup=Catchup(policy=CatchupPolicy.LATEST, grace=timedelta(minutes=2), max_age=timedelta(days=7)),
        overlap=OverlapPolicy.QUEUE,
        finish_by=timedelta(hours=4),
        on_final_failure=FinalFailurePolicy.CONTINUE,
        renamed_from="ingest",
        tags=("etl",),
        file="etl.yaml",
    )
    assert loaded.limits == {"openai": Limit(key="openai", owner="data-team", concurrency=4)}
    assert loaded.owners == {"data-team"}
    assert timing.calendar.shift is Shift.SKIP
    assert timing.calendar.known_until == date(2028, 12, 31)
    assert timing.calendar.source is not None and timing.calendar.source.startswith("holidays 0.")
    (berlin,) = timing.calendar.excluded
    assert berlin.name == "de-holidays"
    assert date(2027, 3, 8) in berlin.dates and date(2027, 12, 25) in berlin.dates


def test_what_is_left_out_has_the_documented_default(load: Load) -> None:
    definition = one(load, 'cron: "0 2 * * *"\ntimezone: UTC\njob: ingest')
    assert definition == Definition(
        name="a", owner="default", timing=definition.timing, job_type="ingest", file="etl.yaml"
    )
    assert definition.timing.start is None and definition.timing.jitter == timedelta(0)

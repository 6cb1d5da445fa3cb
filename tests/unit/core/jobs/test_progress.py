"""What a handler may say about its progress, and how it is shown."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from scheduler.core.jobs.progress import NOTE_LIMIT, Progress, describe_progress, storable_progress
from scheduler.handlers import Job
from scheduler.services.executors import Execution
from scheduler.storage.database import Database


@pytest.fixture
def execution() -> Execution:
    return Execution(Job(id=1, job_type="x"), Database(""), extended_at=0.0, trusted_until=0.0)


@pytest.mark.parametrize(
    ("given", "fraction"),
    [(0, 0.0), (1, 1.0), (0.4, 0.4), (Fraction(1, 3), 0.3333), (Decimal("0.5"), 0.5), (1e-300, 0.0), (True, 1.0)],
)
def test_a_fraction_is_kept_to_four_digits(execution: Execution, given: Any, fraction: float) -> None:
    execution.job.progress(given)
    assert execution.progress == (fraction, None)


@pytest.mark.parametrize("given", [-0.1, 1.1, 40, math.nan, math.inf, 10**400, None, "half", [0.5], 1j])
def test_a_number_that_is_no_fraction_is_refused_with_what_to_write(execution: Execution, given: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a fraction: write a number from 0 to 1, such as 0\.4"):
        execution.job.progress(given)
    assert execution.progress is None


def test_the_newest_word_counts(execution: Execution) -> None:
    execution.job.progress(0.1, "page 10")
    execution.job.progress(0.2)
    assert execution.progress == (0.2, None)


def test_a_job_without_a_worker_takes_progress_too() -> None:
    Job(id=1, job_type="x").progress(0.5, "in a unit test")
    with pytest.raises(ValueError, match="progress 2 is not a fraction"):
        Job(id=1, job_type="x").progress(2)
    with pytest.raises(ValueError, match=r"progress \(a value too long to show\) is not a fraction"):
        Job(id=1, job_type="x").progress(10**5000)


def test_a_note_is_stored_as_error_texts_are() -> None:
    said = Progress(0.5, "password=secret \0 \ud800" + "x" * 1000)
    stored = storable_progress(said)
    assert stored.fraction == 0.5
    assert stored.note is not None
    assert len(stored.note) <= NOTE_LIMIT
    assert stored.note.startswith("password=... \N{REPLACEMENT CHARACTER} ?xx")
    assert storable_progress(Progress(0.5)) == (0.5, None)


@pytest.mark.parametrize(
    ("fraction", "note", "text"),
    [
        (None, None, None),
        (0.0, None, "0%"),
        (0.29, "page 29", "29%: page 29"),
        (0.9999, None, "99%"),
        (1.0, "", "100%"),
    ],
)
def test_progress_is_shown_in_whole_percent(fraction: float | None, note: str | None, text: str | None) -> None:
    assert describe_progress(fraction, note) == text

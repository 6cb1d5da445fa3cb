"""What ``sched jobs`` says about each job that a person acts on: what is so, and what to do."""

from __future__ import annotations

import pytest

from scheduler.core.jobs.actions import ACTIONS
from scheduler.core.models import JobStatus
from scheduler.interfaces.cli.job_actions import _print_outcomes, _told
from scheduler.storage.operating import ActionOutcome

REFUSED = [
    (action, status)
    for action, meaning in ACTIONS.items()
    for status in JobStatus
    if status not in meaning.works_on and status not in meaning.done
]


@pytest.mark.parametrize(("action", "status"), REFUSED)
def test_every_state_that_an_action_does_not_work_on_is_explained(action: str, status: JobStatus) -> None:
    state, _, why = _told(action, ActionOutcome(7, status.value)).partition("; ")
    assert state == status.value
    assert len(why.split()) > 3
    assert "{" not in why


@pytest.mark.parametrize(
    ("action", "result", "told"),
    [
        ("retry", ActionOutcome(7, "retried"), "retried"),
        ("retry", ActionOutcome(7, "succeeded"), 'succeeded; "sched jobs replay 7" does its work again, as a new job'),
        ("replay", ActionOutcome(7, "replayed", 8), "replayed as job 8"),
        ("replay", ActionOutcome(7, "held"), 'held; it has not ended; "sched jobs release 7" lets it go on'),
        (
            "hold",
            ActionOutcome(7, "running"),
            'running; only what has not started can be held; "sched jobs cancel 7" stops it',
        ),
        ("release", ActionOutcome(7, "dead"), 'dead; it is not held; "sched jobs retry 7" makes it run again'),
        ("cancel", ActionOutcome(7, "asked"), "asked to stop; if it has not ended in 30 seconds, it is cancelled"),
        ("cancel", ActionOutcome(7, "not_found"), "gone; it was deleted meanwhile"),
    ],
)
def test_an_outcome_is_told_with_what_to_do(action: str, result: ActionOutcome, told: str) -> None:
    assert _told(action, result) == told


def test_the_outcomes_of_a_filter_are_counted_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    _print_outcomes("cancel", {"cancelled": 2, "asked": 1, "dead": 1, "not_found": 3})
    assert capsys.readouterr().out.splitlines() == [
        "1 job asked to stop",
        "2 jobs cancelled",
        "1 job left alone: meanwhile dead",
        "3 jobs left alone: meanwhile gone",
    ]

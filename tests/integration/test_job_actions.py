"""What people do to jobs, and what releases what was held: slots are freed and given on each time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduler.services.operate import act_on_jobs, resume_schedule
from scheduler.storage.database import Connection
from scheduler.storage.operating import By
from tests.support.build import MINUTE, NOON, Policy, add_schedule, claim_all, fire, jobs, plan_dates
from tests.support.database import connect
from tests.support.invariants import violations

BY = By(actor="anna", reason="test")


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection
        assert violations(connection) == {}


def three_queued(db: Connection, **policy: object) -> list[int]:
    schedule = add_schedule(db, policy=Policy(catchup="all", **policy))  # type: ignore[arg-type]
    plan_dates(db, schedule, NOON - 2 * MINUTE, 3)
    fire(db, NOON)
    return [row[0] for row in jobs(db, "id")]


def outcomes_of(db: Connection, action: str, ids: list[int], by: By) -> dict[int, str]:
    """The outcome of an action for each job."""
    return {each.id: each.outcome for each in act_on_jobs(db, action, ids, by)}


def statuses(db: Connection) -> list[str]:
    return [row[0] for row in jobs(db, "status")]


def test_holding_the_job_in_line_lets_the_next_one_in(db: Connection) -> None:
    first, *_ = three_queued(db)
    assert outcomes_of(db, "hold", [first], BY) == {first: "held"}
    assert statuses(db) == ["held", "pending", "waiting"]
    assert outcomes_of(db, "release", [first], BY) == {first: "released"}
    assert statuses(db) == ["waiting", "pending", "waiting"]
    assert outcomes_of(db, "release", [first], BY) == {first: "waiting"}


def test_cancelling_frees_the_slot_and_ends_the_job(db: Connection) -> None:
    first, *_ = three_queued(db)
    assert outcomes_of(db, "cancel", [first], BY) == {first: "cancelled"}
    assert statuses(db) == ["cancelled", "pending", "waiting"]
    assert outcomes_of(db, "cancel", [first], BY) == {first: "cancelled"}
    assert db.execute("select kind, actor, reason from sched.events").fetchall() == [("job_cancelled", "anna", "test")]


def test_a_running_job_is_asked_to_stop_and_told_at_its_heartbeat(db: Connection) -> None:
    three_queued(db)
    ((job_id, token),) = claim_all(db)
    assert outcomes_of(db, "hold", [job_id], BY) == {job_id: "running"}
    assert outcomes_of(db, "cancel", [job_id], BY) == {job_id: "asked"}
    beat = "select outcome, is_cancel_requested from sched.heartbeat(array[%s]::bigint[], array[%s]::uuid[], '15 s')"
    assert db.execute(beat, (job_id, token)).fetchall() == [("extended", True)]


def test_a_cancelled_job_runs_again_when_it_is_retried(db: Connection) -> None:
    first, *_ = three_queued(db)
    act_on_jobs(db, "cancel", [first], BY)
    assert outcomes_of(db, "retry", [first], BY) == {first: "retried"}
    assert statuses(db) == ["waiting", "pending", "waiting"]


def test_resuming_releases_what_a_final_failure_put_on_hold_and_nothing_else(db: Connection) -> None:
    _, second, third = three_queued(db, on_final_failure="pause", max_attempts=1)
    act_on_jobs(db, "hold", [third], BY)
    ((job_id, token),) = claim_all(db)
    fail = "select * from sched.fail(array[%s]::bigint[], array[%s]::uuid[], array['failed'], array['broken'])"
    db.execute(fail, (job_id, token))
    assert statuses(db) == ["dead", "held", "held"]
    assert resume_schedule(db, "s", BY) == "resumed"
    assert statuses(db) == ["dead", "pending", "held"]
    assert outcomes_of(db, "release", [second], BY) == {second: "pending"}

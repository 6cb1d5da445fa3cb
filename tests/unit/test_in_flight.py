"""What the threads of a worker share: slots, jobs that wait for one, and how long jobs take."""

from __future__ import annotations

import time
from uuid import uuid4

from scheduler.core.models import AttemptOutcome
from scheduler.handlers import Job
from scheduler.services.executors import Execution
from scheduler.services.worker.in_flight import HANDED_BACK, InFlight
from scheduler.storage.database import Database
from scheduler.storage.jobs import Ending

SUCCEEDED = Ending(outcome=AttemptOutcome.SUCCEEDED)


def claimed(count: int) -> list[Execution]:
    now = time.monotonic()
    return [
        Execution(Job(id=number, job_type="x", lease_token=str(uuid4())), Database(""), now, now + 60)
        for number in range(count)
    ]


def test_claimed_jobs_get_slots_in_order_and_the_others_wait_until_one_returns() -> None:
    in_flight, jobs = InFlight(2), claimed(5)
    in_flight.add(jobs)
    assert in_flight.occupy_slots() == jobs[:2]
    assert (in_flight.free_slots, in_flight.waiting, in_flight.occupy_slots()) == (0, 3, [])
    in_flight.returned([(jobs[1], SUCCEEDED)])
    assert in_flight.occupy_slots() == [jobs[2]]
    assert in_flight.unsettled == 5


def test_waiting_jobs_are_withdrawn_only_when_no_slot_became_free_for_a_while() -> None:
    in_flight, jobs = InFlight(1), claimed(3)
    in_flight.add(jobs)
    in_flight.occupy_slots()
    assert in_flight.withdraw_waiting(60) == []
    assert in_flight.withdraw_waiting(0) == jobs[1:]
    assert [each.ending for each in jobs] == [None, HANDED_BACK, HANDED_BACK]
    in_flight.returned([(jobs[0], SUCCEEDED)])
    assert in_flight.occupy_slots() == []


def test_the_mean_duration_is_that_of_jobs_returned_since_it_was_last_asked() -> None:
    in_flight, jobs = InFlight(2), claimed(2)
    in_flight.add(jobs)
    in_flight.occupy_slots()
    assert in_flight.take_mean_duration() is None
    jobs[0].started_at -= 10
    jobs[1].started_at -= 20
    in_flight.returned([(each, SUCCEEDED) for each in jobs])
    mean = in_flight.take_mean_duration()
    assert mean is not None
    assert 15 <= mean < 16
    assert in_flight.take_mean_duration() is None


def test_a_job_whose_work_returned_holds_nothing_of_the_worker() -> None:
    in_flight, (execution,) = InFlight(1), claimed(1)
    in_flight.add([execution])
    in_flight.occupy_slots()
    execution.cancel()
    in_flight.returned([(execution, SUCCEEDED)])
    assert execution.job.control is not execution
    assert execution.job.cancelled

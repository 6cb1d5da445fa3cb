"""Starting claimed jobs: what was cancelled or lost while it waited for a slot is not begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from scheduler.core.models import AttemptOutcome
from scheduler.handlers import HandlerRegistry, Job
from scheduler.services.executors import Execution, metadata_text
from scheduler.services.worker.dispatcher import Dispatcher
from scheduler.services.worker.in_flight import InFlight
from scheduler.storage.database import Database
from tests.support.wait import wait_for


@pytest.mark.parametrize(
    ("end", "outcome"), [(Execution.cancel, AttemptOutcome.CANCELLED), (Execution.lose, AttemptOutcome.RETRIED)]
)
def test_a_job_that_was_ended_while_it_waited_is_not_begun(end: Any, outcome: AttemptOutcome) -> None:
    registry, in_flight, go_on, begun = HandlerRegistry(), InFlight(1), threading.Event(), list[int]()

    @registry.handler("plain")
    def plain(job: Job) -> None:
        begun.append(job.id)
        assert go_on.wait(10)

    dispatcher = Dispatcher(registry, in_flight, {"SCHED_DSN": ""})
    now = time.monotonic()
    jobs = [Job(id=number, job_type="plain", lease_token=str(uuid4())) for number in range(3)]
    executions = [Execution(job, Database(""), now, now + 60) for job in jobs]
    dispatcher.start(executions)
    end(executions[1])
    go_on.set()
    wait_for(lambda: in_flight.free_slots == 1 and not in_flight.waiting, 10, "all jobs to return")
    dispatcher.close(at_once=True)
    endings = {execution.job.id: ending.outcome for execution, ending in in_flight.take_ended(3)}
    assert endings == {0: AttemptOutcome.SUCCEEDED, 1: outcome, 2: AttemptOutcome.SUCCEEDED}
    assert begun == [0, 2]


def test_metadata_that_changes_while_it_is_read_is_replaced_by_the_reason() -> None:
    class Growing(dict[str, Any]):
        def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
            for pair in super().items():
                self[str(len(self))] = 1
                yield pair

    text = metadata_text(Job(id=1, job_type="x", metadata=Growing(a=1)))
    assert text == '{"error": "metadata: was changed while it was read"}'

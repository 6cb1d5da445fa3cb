"""Progress of running jobs: stored with heartbeats, about once a second, only when it is new and the lease is ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.handlers import HandlerRegistry, Job
from scheduler.services.executors import Execution
from scheduler.services.worker.heartbeat import Heartbeat
from scheduler.services.worker.in_flight import InFlight
from scheduler.services.worker.settings import WorkerSettings
from scheduler.storage.database import Database
from scheduler.storage.migrations import migrate
from tests.support import process_app
from tests.support.cluster import Cluster
from tests.support.database import connect
from tests.support.leases import OTHER_TOKEN, Connection, add, claim, complete, expire, outcomes, snapshot, updates
from tests.support.wait import wait_for
from tests.support.working import PATIENCE, enqueue, job_row, running_worker, wait_for_status

REPORT = "select outcome from sched.heartbeat(%s::bigint[], %s::uuid[], '15 s', %s::real[], %s::text[])"


def progress(connection: Connection) -> list[tuple[float | None, str | None]]:
    return connection.execute("select progress, progress_note from sched.jobs order by id").fetchall()


def wait_for_progress(dsn: str, job_id: int, fraction: float, note: str | None) -> dict[str, Any]:
    """The row of a job, as soon as it says this."""

    def said() -> dict[str, Any] | None:
        row = job_row(dsn, job_id)
        return row if (row["progress"], row["progress_note"]) == (fraction, note) else None

    found = wait_for(said, PATIENCE, f"the progress {fraction} {note}")
    assert found is not None
    return found


def test_a_beat_stores_what_is_new_and_leaves_the_rest_alone(one: Connection) -> None:
    add(one, 3)
    ids, tokens = claim(one)
    assert outcomes(one, REPORT, ids, tokens, [0.4, None, 0.5], ["page 40", None, None]) == ["extended"] * 3
    assert progress(one) == [(0.4, "page 40"), (None, None), (0.5, None)]
    assert outcomes(one, REPORT, ids, tokens, [None, 1.0, 0.6], [None, "done", None]) == ["extended"] * 3
    assert progress(one) == [(0.4, "page 40"), (1, "done"), (0.6, None)]


def test_progress_that_does_not_fit_is_cut_and_no_reason_to_lose_a_lease(one: Connection) -> None:
    add(one, 3)
    ids, tokens = claim(one)
    said = [float("nan"), -1.0, 7.0]
    assert outcomes(one, REPORT, ids, tokens, said, ["x" * 5000, None, None]) == ["extended"] * 3
    assert progress(one) == [(1, "x" * 1000), (0, None), (1, None)]


def test_a_lost_lease_writes_no_progress(one: Connection) -> None:
    add(one, 3)
    ids, tokens = claim(one)
    expire(one, ids[0])
    complete(one, ids[1:2], tokens[1:2])
    before = snapshot(one)
    said = outcomes(one, REPORT, ids, [*tokens[:2], OTHER_TOKEN], [0.9] * 3, ["late"] * 3)
    assert said == ["lost"] * 3
    assert snapshot(one) == before


def test_a_row_that_somebody_holds_is_neither_waited_for_nor_lost(one: Connection, other: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    with one.transaction(force_rollback=True):
        complete(one, ids, tokens)
        assert outcomes(other, REPORT, ids, tokens, [0.5], ["half"]) == []
    assert outcomes(other, REPORT, ids, tokens, [0.5], ["half"]) == ["extended"]


def test_the_next_attempt_begins_without_progress(one: Connection) -> None:
    add(one)
    ids, tokens = claim(one)
    outcomes(one, REPORT, ids, tokens, [0.5], ["half"])
    one.execute("select sched.hand_back(%s, %s::uuid[])", (ids, tokens))
    assert progress(one) == [(0.5, "half")]
    claim(one)
    assert progress(one) == [(None, None)]


def test_beats_with_progress_are_hot_updates(one: Connection) -> None:
    add(one, 2)
    one.execute("vacuum sched.jobs")
    ids, tokens = claim(one)
    with one.transaction():
        hot, updated = updates(one)
        for count in range(3):
            assert outcomes(one, REPORT, ids, tokens, [count / 10] * 2, [str(count) * 200] * 2) == ["extended"] * 2
        hot_after, updated_after = updates(one)
    assert (updated_after - updated, hot_after - hot) == (6, 6)


def under_way(dsn: str, job: Job, extended_at: float = float("inf")) -> Execution:
    """An execution of this job; its heartbeat is not due, unless ``extended_at`` says so."""
    return Execution(job, Database(dsn), extended_at=extended_at, trusted_until=float("inf"))


@contextmanager
def heartbeat_of(dsn: str, *executions: Execution) -> Iterator[Heartbeat]:
    """A heartbeat thread with these in its care, which were claimed in this order."""
    in_flight = InFlight(len(executions))
    for execution in executions:
        in_flight.add([execution])
    heartbeat = Heartbeat(Database(dsn), in_flight, WorkerSettings())
    yield heartbeat
    done = threading.Event()
    done.set()
    heartbeat.run(done)  # ends at once, and closes its connection


def claimed(connection: Connection) -> Job:
    add(connection)
    (job_id,), (token,) = claim(connection)
    return Job(id=job_id, job_type="x", lease_token=token)


def test_nothing_is_sent_while_nothing_is_new(database: str, one: Connection) -> None:
    job = claimed(one)
    last_heartbeat = "select heartbeat_at from sched.jobs"
    with heartbeat_of(database, under_way(database, job)) as heartbeat:
        job.progress(0.4, "page 40")
        heartbeat.report_once()
        after_news = one.execute(last_heartbeat).fetchall()
        assert progress(one) == [(0.4, "page 40")]

        job.progress(0.4, "page 40")
        heartbeat.report_once()
        assert one.execute(last_heartbeat).fetchall() == after_news

        job.progress(0.4, "page 41")
        heartbeat.report_once()
        assert progress(one) == [(0.4, "page 41")]
        assert one.execute(last_heartbeat).fetchall() > after_news


def test_a_heartbeat_takes_progress_along(database: str, one: Connection) -> None:
    job = claimed(one)
    execution = under_way(database, job, extended_at=0.0)
    with heartbeat_of(database, execution) as heartbeat:
        job.progress(0.25)
        heartbeat.send_once()
    assert progress(one) == [(0.25, None)]
    assert execution.extended_at > 0


def test_a_report_after_the_lease_was_lost_stops_the_work_and_is_not_repeated(database: str, one: Connection) -> None:
    job = claimed(one)
    execution = under_way(database, job)
    with heartbeat_of(database, execution) as heartbeat:
        expire(one, job.id)
        job.progress(0.5)
        heartbeat.report_once()
        assert execution.is_lost and job.cancelled

        one.execute("update sched.jobs set lease_expires_at = clock_timestamp() + interval '1 hour'")
        job.progress(0.6)
        heartbeat.report_once()
    assert progress(one) == [(None, None)]


def test_what_a_lost_attempt_of_ours_is_told_does_not_end_the_next_one(database: str, one: Connection) -> None:
    job = claimed(one)
    expire(one, job.id)
    one.execute("select sched.reap()")
    _, (token,) = claim(one)
    lost = under_way(database, job, extended_at=0.0)
    alive = under_way(database, Job(id=job.id, job_type="x", lease_token=token), extended_at=0.0)
    with heartbeat_of(database, lost, alive) as heartbeat:
        heartbeat.send_once()
    assert not alive.is_lost
    assert alive.extended_at > 0


@pytest.mark.parametrize("kind", ["plain", "async", "process"])
def test_progress_of_every_kind_of_handler_is_seen_while_it_runs(database: str, kind: str, tmp_path: Path) -> None:
    registry = HandlerRegistry()
    registry.handler("process.progress", isolation="process")(process_app.report)
    registry.handler("plain.progress")(process_app.report)

    @registry.handler("async.progress")
    async def asynchronous(job: Job) -> str:
        return await asyncio.to_thread(process_app.report, job)

    go_on = tmp_path / "go_on"
    with running_worker(database, registry) as running:
        job_id = enqueue(database, f"{kind}.progress", {"go_on": str(go_on)})
        row = wait_for_progress(database, job_id, 0.4, "page 40 of 100")
        assert (row["status"], row["attempt_count"]) == ("running", 1)
        go_on.touch()
        ended = wait_for_status(database, job_id, "succeeded")
        running.stop.set()
        assert running.join().lost == 0
    assert (ended["result"], ended["progress"]) == ("done", pytest.approx(0.4))


def test_a_note_is_stored_bounded_and_without_secrets(database: str, one: Connection) -> None:
    job = claimed(one)
    with heartbeat_of(database, under_way(database, job)) as heartbeat:
        job.progress(0.1, "to postgresql://ann:secret@db/x \0 \ud800 " + "x" * 100_000)
        heartbeat.report_once()
    ((_, note),) = progress(one)
    assert note is not None
    assert len(note) <= 200
    assert note.startswith("to postgresql://...")
    assert "secret" not in note and "\0" not in note


def test_a_note_that_the_database_has_no_characters_for_costs_no_lease(server: Cluster) -> None:
    """The server refuses the text; the heartbeat is repeated without it, and what is said later is stored."""
    registry, may_end = HandlerRegistry(), threading.Event()

    @registry.handler("speak")
    def speak(job: Job) -> None:
        job.progress(0.4, "10 \N{EURO SIGN}")
        assert may_end.wait(PATIENCE)

    with connect(server.dsn()) as admin:
        admin.execute("create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0")
    try:
        dsn = server.dsn("latin")
        with connect(dsn) as connection:
            migrate(connection)
            job_id = enqueue(dsn, "speak")
            with running_worker(dsn, registry, lease=timedelta(seconds=1)):
                wait_for_status(dsn, job_id, "running")
                begun = job_row(dsn, job_id)["lease_expires_at"]
                wait_for(
                    lambda: job_row(dsn, job_id)["lease_expires_at"] > begun + timedelta(seconds=3),
                    PATIENCE,
                    "heartbeats",
                )
                may_end.set()
                wait_for_status(dsn, job_id, "succeeded")
            assert job_row(dsn, job_id)["attempt_count"] == 1
    finally:
        with connect(server.dsn()) as admin:
            admin.execute("drop database latin with (force)")

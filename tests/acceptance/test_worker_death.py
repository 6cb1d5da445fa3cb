"""Workers that stop, die, starve or are told to end, as processes: cases WK-01 to WK-04.

Many workers that stop at named points are in ``test_zombies``.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psycopg
import pytest

from tests.support.invariants import violations
from tests.support.wait import wait_for
from tests.support.worker_process import (
    WorkerProcess,
    is_alive,
    open_gate,
    prepare,
    starts,
    supervisors_of,
    wait_for_start,
)
from tests.support.working import attempts_of, enqueue, job_row, wait_for_status

pytestmark = pytest.mark.acceptance


@pytest.fixture(autouse=True)
def tables(database: str) -> None:
    prepare(database)


def outcomes(dsn: str, job_id: int) -> list[str]:
    return [attempt["outcome"] for attempt in attempts_of(dsn, job_id)]


@pytest.mark.parametrize("raises", [False, True])
def test_a_worker_back_from_the_dead_changes_nothing_and_says_that_it_lost_the_lease(
    database: str, tmp_path: Path, raises: bool
) -> None:
    job_id = enqueue(database, "test.gate", {"raises": raises})
    with WorkerProcess(database, tmp_path, "--lease", "2s", name="a") as a:
        assert wait_for_start(database, job_id, 1) == a.process.pid
        a.signal(signal.SIGSTOP)
        with WorkerProcess(database, tmp_path, "--lease", "2s", name="b") as b:
            assert wait_for_start(database, job_id, 2) == b.process.pid
            open_gate(database, 1)
            a.signal(signal.SIGCONT)
            a.wait_for_log("lease lost")
            a.signal(signal.SIGTERM)
            assert a.wait() == 0
            row = job_row(database, job_id)
            assert (row["status"], row["attempt_count"]) == ("running", 2)
            assert outcomes(database, job_id) == ["lost"]
            open_gate(database, 2)
            final = wait_for_status(database, job_id, "scheduled" if raises else "succeeded")
            assert outcomes(database, job_id) == ["lost", "failed" if raises else "succeeded"]
            assert final["result"] == (None if raises else {"pid": b.process.pid})


def test_a_handler_that_blocks_its_thread_keeps_its_lease(database: str, tmp_path: Path) -> None:
    job_id = enqueue(database, "test.sleep", {"seconds": 4})
    with WorkerProcess(database, tmp_path, "--lease", "1s", "--drain") as worker:
        assert worker.wait() == 0
    assert job_row(database, job_id)["status"] == "succeeded"
    assert len(starts(database, job_id)) == 1


def test_a_handler_that_keeps_the_interpreter_is_fenced_and_the_log_says_why(database: str, tmp_path: Path) -> None:
    job_id = enqueue(database, "test.hold_interpreter", {"seconds": 4})
    with WorkerProcess(database, tmp_path, "--lease", "1s", "--drain") as worker:
        assert worker.wait() == 0
        assert "the heartbeat was late" in worker.log and 'isolation="process"' in worker.log
    assert outcomes(database, job_id) == ["lost", "succeeded"]


def test_a_job_that_kills_its_worker_is_dead_after_its_attempts_and_others_go_on(database: str, tmp_path: Path) -> None:
    killer = enqueue(database, "test.die", max_attempts=3)
    others = []
    while job_row(database, killer)["status"] != "dead":
        others.append(enqueue(database, "test.note"))
        with WorkerProcess(database, tmp_path, "--lease", "1s", "--drain") as worker:
            assert worker.wait() in (0, 137)
    assert outcomes(database, killer) == ["lost", "lost", "lost"]
    assert "worker died" in job_row(database, killer)["last_error"]
    assert len(starts(database, killer)) == 3
    with WorkerProcess(database, tmp_path, "--lease", "1s", "--drain") as worker:
        assert worker.wait() == 0
    assert {job_row(database, other)["status"] for other in others} == {"succeeded"}
    with psycopg.connect(database) as connection:
        assert violations(connection) == {}


@pytest.mark.parametrize("job_type", ["test.sleep", "test.async_sleep"])
def test_a_second_signal_hands_the_job_back_at_once_without_spending_the_attempt(
    database: str, tmp_path: Path, job_type: str
) -> None:
    job_id = enqueue(database, job_type, {"seconds": 60})
    with WorkerProcess(database, tmp_path) as worker:
        wait_for_start(database, job_id, 1)
        worker.signal(signal.SIGTERM)
        waiting = enqueue(database, "test.note")
        with pytest.raises(Exception, match="timed out"):
            worker.wait(1)
        assert job_row(database, waiting)["status"] == "pending"
        worker.signal(signal.SIGTERM)
        assert worker.wait(5) == 0
    row = job_row(database, job_id)
    assert (row["status"], row["attempt_count"]) == ("pending", 0)


@pytest.mark.parametrize(("lease", "bound"), [("5s", 7.0), ("15s", 18.0)])
def test_the_job_of_a_killed_worker_runs_again_soon_after_its_lease(
    database: str, tmp_path: Path, lease: str, bound: float
) -> None:
    job_id = enqueue(database, "test.gate")
    with WorkerProcess(database, tmp_path, "--lease", lease, name="a") as victim:
        wait_for_start(database, job_id, 1)
        with WorkerProcess(database, tmp_path, "--lease", lease, name="b"):
            wait_for(lambda: _known_workers(database) == 2, 20, "the second worker")
            victim.signal(signal.SIGKILL)
            killed = time.monotonic()
            wait_for_start(database, job_id, 2, bound)
            print(f"lease {lease}: running again {time.monotonic() - killed:.1f} s after the kill")
            open_gate(database, 2)
            wait_for_status(database, job_id, "succeeded")
    assert outcomes(database, job_id) == ["lost", "succeeded"]


def test_the_command_of_a_killed_worker_ends_with_all_it_started(database: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
    enqueue(database, "run.shell", run={"shell": "true"})  # which ends before
    job_id = enqueue(database, "run.shell", run={"shell": script})
    with WorkerProcess(database, tmp_path) as worker:
        wait_for(pids.exists, 30, "the command to run")
        worker.signal(signal.SIGKILL)
        worker.wait()
        wait_for(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()), 30, "the processes to end")
    assert job_row(database, job_id)["status"] == "running"


def test_a_supervisor_that_was_killed_is_replaced_and_told_of_every_command(database: str, tmp_path: Path) -> None:
    def command(name: str) -> int:
        pid = tmp_path / name
        enqueue(database, "run.shell", run={"shell": f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600"})
        wait_for(pid.exists, 30, f"the {name} command to run")
        return int(pid.read_text())

    with WorkerProcess(database, tmp_path) as worker:
        before = command("first")
        (supervisor,) = wait_for(lambda: supervisors_of(worker.process.pid), 10, "the supervisor to be there")
        os.kill(supervisor, signal.SIGKILL)
        wait_for(lambda: not is_alive(supervisor), 10, "the supervisor to end")
        after = command("second")
        worker.signal(signal.SIGKILL)
        worker.wait()
        wait_for(lambda: not (is_alive(before) or is_alive(after)), 10, "both commands to end")


def _known_workers(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from sched.workers").fetchone()
    assert row is not None
    return int(row[0])

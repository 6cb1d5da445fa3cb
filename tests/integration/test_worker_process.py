"""``isolation="process"``: whatever a handler does to its process is a recorded attempt, and the worker goes on."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from scheduler.errors import ConfigError
from scheduler.handlers import HandlerRegistry, Job
from tests.support.process_app import registry
from tests.support.wait import wait_for
from tests.support.working import attempts_of, drain, enqueue, job_row, running_worker, wait_for_status


def test_a_job_runs_in_another_process_which_is_kept_for_the_next(database: str) -> None:
    with running_worker(database, registry, concurrency=1):
        first = wait_for_status(database, enqueue(database, "process.echo", {"a": [1]}), "succeeded")
        second = wait_for_status(database, enqueue(database, "process.echo"), "succeeded")
    assert first["result"]["payload"] == {"a": [1]}
    assert first["result"]["pid"] == second["result"]["pid"] != os.getpid()
    assert attempts_of(database, first["id"])[0]["metadata"] == {"seen": True}
    wait_for(lambda: not Path(f"/proc/{first['result']['pid']}").exists(), 10, "the child to end with its worker")


def test_an_async_handler_may_be_isolated_too(database: str) -> None:
    job_id = enqueue(database, "process.async")
    drain(database, registry)
    assert job_row(database, job_id)["result"] == "awaited"


def test_exceptions_steer_as_they_do_elsewhere(database: str) -> None:
    failed, dead = enqueue(database, "process.raise"), enqueue(database, "process.raise", {"discard": True})
    drain(database, registry)
    assert job_row(database, failed)["last_error"].startswith("ValueError: broken")
    assert (job_row(database, dead)["status"], job_row(database, dead)["last_error"]) == ("dead", "no use")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("segfault", "the job's process was ended by SIGSEGV"),
        ("exit", "the job's process ended with exit code 3 before the handler returned"),
        ("memory", "the job's process was ended by SIGKILL (out of memory?)"),
        ("loop", "timed out after 0:00:02"),
    ],
)
def test_a_process_that_dies_or_never_ends_is_a_failed_attempt_and_others_go_on(
    database: str, how: str, error: str
) -> None:
    bad = enqueue(database, "process.die", {"how": how}, timeout=timedelta(seconds=2))
    good = enqueue(database, "process.echo")
    result = drain(database, registry, lease=timedelta(seconds=2))
    assert (result.failed, result.succeeded, result.lost) == (1, 1, 0)
    assert job_row(database, bad)["last_error"] == error
    assert job_row(database, good)["status"] == "succeeded"


def test_what_a_handler_started_ends_with_it(database: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    job_id = enqueue(database, "process.children", {"pid_file": str(pid_file)}, timeout=timedelta(seconds=2))
    drain(database, registry)
    assert attempts_of(database, job_id)[0]["outcome"] == "timed_out"
    wait_for(lambda: not Path(f"/proc/{pid_file.read_text()}").exists(), 10, "the grandchild to end")


def test_a_stop_hands_the_job_back_and_ends_its_process(database: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with running_worker(database, registry, shutdown_grace=timedelta(0)) as running:
        job_id = enqueue(database, "process.children", {"pid_file": str(pid_file)})
        wait_for(lambda: pid_file.exists() and pid_file.read_text(), 20, "the handler to begin")
        running.stop.set()
        assert running.join().handed_back == 1
    assert job_row(database, job_id)["status"] == "pending"
    wait_for(lambda: not Path(f"/proc/{pid_file.read_text()}").exists(), 10, "the grandchild to end")


def test_output_and_completion_commit_together_from_the_child(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table public.output (job_id bigint)")
        job_id = enqueue(database, "process.transaction", {"seconds": 1.5})
        result = drain(database, registry, lease=timedelta(seconds=1))
        assert (result.succeeded, result.lost) == (1, 0)
        assert job_row(database, job_id)["result"] == "written"
        assert connection.execute("select job_id from public.output").fetchall() == [(job_id,)]


def test_a_child_that_completed_its_job_may_go_on_until_the_time_out(database: str, tmp_path: Path) -> None:
    lasting, late = tmp_path / "lasting", tmp_path / "late"
    enqueue(database, "process.completed", {"seconds": 2, "file": str(lasting)})
    result = drain(database, registry, lease=timedelta(seconds=1))
    assert (result.succeeded, result.lost) == (1, 0)
    assert lasting.read_text() == "written"
    enqueue(database, "process.completed", {"seconds": 600, "file": str(late)}, timeout=timedelta(seconds=1))
    result = drain(database, registry, lease=timedelta(seconds=5))
    assert (result.succeeded, result.lost, result.failed) == (1, 0, 0)
    assert not late.exists()


def test_a_function_that_cannot_be_imported_by_name_is_refused_when_it_is_registered() -> None:
    with pytest.raises(ConfigError, match="not at the top of an importable module"):

        @HandlerRegistry().handler("x", isolation="process")
        def local(job: Job) -> None:
            return None

"""tick, worker and up, through the command line; their loops as real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import DAILY, Ended, process_environment, sched, sched_process, start_sched, write_definitions
from tests.support.database import connect
from tests.support.wait import wait_for

EVERY_SECOND = """\
  beat:
    every: 1s
    job: test.noop
    catchup: {policy: all}
"""
APP = """\
import time
from scheduler.handlers import handler

@handler("test.noop")
def noop(job):
    return {"ok": True}

@handler("test.slow")
def slow(job):
    time.sleep(job.payload["seconds"])
    return {"ok": True}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working directory with a module of handlers and a folder of definitions."""
    (tmp_path / "team_jobs.py").write_text(APP)
    write_definitions(tmp_path / "schedules", EVERY_SECOND)
    return tmp_path


@contextlib.contextmanager
def running(*arguments: str, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A command for the time of a ``with`` block; killed if the test has not ended it."""
    process = start_sched(*arguments, cwd=cwd, environment=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], timeout: float = 20) -> Ended:
    out, err = process.communicate(timeout=timeout)
    return Ended(process.returncode, out, err)


def value(database: str, query: str) -> Any:
    with connect(database) as connection:
        row = connection.execute(query).fetchone()  # type: ignore[call-overload]
    return None if row is None else row[0]


def test_one_tick_plans_and_says_what_comes(database: str, work: Path) -> None:
    write_definitions(work / "schedules", DAILY)

    document = sched("tick", "--once", "--apply", str(work / "schedules"), "--dsn", database, "--json").document

    assert (document["enqueued"], document["skipped"], document["missed"], document["busy"]) == (0, 0, 0, False)
    assert document["next_due_at"].endswith("T02:00:00Z")


def test_a_drained_worker_reports_what_it_did(database: str, work: Path) -> None:
    for _ in range(3):
        sched("enqueue", "test.noop", "--dsn", database)

    done = sched_process("worker", "--app", "team_jobs", "--drain", "--dsn", database, "--json", cwd=work)

    assert done.code == 0, done.err
    assert (done.document["claimed"], done.document["succeeded"], done.document["failed"]) == (3, 3, 0)


SHELL = """\
  hello:
    cron: "0 2 * * *"
    start: 2024-01-01
    run: {shell: 'echo "hello $SCHED_PAYLOAD_WHO"'}
    payload: {who: world}
"""


def test_a_shell_job_from_a_file_runs(database: str, tmp_path: Path) -> None:
    sched("apply", str(write_definitions(tmp_path, SHELL)), "--dsn", database)
    sched("schedules", "trigger", "hello", "--date", "2024-03-05", "--dsn", database)

    done = sched_process("worker", "--drain", "--dsn", database, "--json", cwd=tmp_path)

    assert (done.code, done.document["succeeded"]) == (0, 1), done.err
    assert "hello world" in str(value(database, "select result from sched.jobs"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_ticker_fires_every_second_and_stops_at_a_signal(database: str, work: Path, number: int) -> None:
    with running("tick", "--apply", "schedules", "--dsn", database, cwd=work) as ticker:
        wait_for(lambda: value(database, "select count(*) from sched.jobs") >= 2, 20, "two jobs")
        ticker.send_signal(number)
        done = ended(ticker)

    assert (done.code, done.out) == (0, ""), done.err
    assert "Traceback" not in done.err


def test_a_ticker_applies_files_that_change(database: str, work: Path) -> None:
    with running("tick", "--apply", "schedules", "--dsn", database, cwd=work) as ticker:
        wait_for(lambda: value(database, "select count(*) from sched.schedules") == 1, 20, "the first schedule")
        write_definitions(work / "schedules", EVERY_SECOND + DAILY)
        wait_for(lambda: value(database, "select count(*) from sched.schedules") == 2, 20, "the second schedule")
        write_definitions(work / "schedules", EVERY_SECOND + DAILY.replace('"0 2', '"99 2'))
        time_of_change = time.monotonic()
        while time.monotonic() < time_of_change + 3:
            assert ticker.poll() is None
            time.sleep(0.1)
        ticker.terminate()
        done = ended(ticker)

    assert done.code == 0
    assert "daily.cron" in done.err
    assert "the definitions applied before stay in force" in done.err


def test_a_worker_lets_its_jobs_finish_when_stopped(database: str, work: Path) -> None:
    sched("enqueue", "test.slow", "--payload", '{"seconds": 2}', "--dsn", database)
    with running("worker", "--app", "team_jobs", "--dsn", database, cwd=work) as worker:
        wait_for(lambda: value(database, "select status from sched.jobs") == "running", 20, "the job to run")
        worker.terminate()
        done = ended(worker)

    assert (done.code, value(database, "select status from sched.jobs")) == (0, "succeeded"), done.err


def test_a_second_signal_ends_a_worker_at_once(database: str, work: Path) -> None:
    sched("enqueue", "test.slow", "--payload", '{"seconds": 60}', "--dsn", database)
    with running("worker", "--app", "team_jobs", "--dsn", database, cwd=work) as worker:
        wait_for(lambda: value(database, "select status from sched.jobs") == "running", 20, "the job to run")
        worker.terminate()
        wait_for(lambda: worker.poll() is not None or _send(worker), 15, "the worker to end")
        done = ended(worker)

    assert "Traceback" not in done.err
    assert value(database, "select status from sched.jobs") in ("pending", "running")


def test_up_does_everything_on_an_embedded_database_of_its_own(work: Path) -> None:
    with running("up", "--app", "team_jobs", cwd=work) as process:
        wait_for(lambda: _succeeded(work) >= 2, 60, "two jobs to succeed")
        process.send_signal(signal.SIGINT)
        done = ended(process, 40)

    assert (done.code, done.out) == (0, ""), done.err
    assert done.err.splitlines()[0] == f"embedded PostgreSQL in {work / '.sched'}"
    assert "Traceback" not in done.err


def test_the_embedded_database_is_migrated_by_the_first_command(tmp_path: Path) -> None:
    done = sched_process("status", "--json", cwd=tmp_path)

    assert (done.code, done.document["schedules"]) == (0, 0)
    assert "migrated the embedded database: 0001_initial" in done.err


def test_output_into_a_closed_pipe_ends_quietly(database: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "scheduler.interfaces.cli.main", "migrate", "--sql"],
            stdout=closed, stderr=subprocess.PIPE, text=True, check=False, env=process_environment(),
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_an_internal_error_is_one_sentence_unless_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KeyError("nobody expected this")

    monkeypatch.setattr("scheduler.storage.migrations.migration_script", broken)

    quiet = sched("migrate", "--sql")
    monkeypatch.setenv("SCHED_DEBUG", "1")
    loud = sched("migrate", "--sql")

    assert (quiet.code, quiet.out) == (4, "")
    assert quiet.err == (
        "internal error: KeyError: 'nobody expected this'; run it again with SCHED_DEBUG=1 to see where\n"
    )
    assert (loud.code, "Traceback" in loud.err) == (4, True)


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scheduler.storage.migrations.migration_script", interrupted)

    assert sched("migrate", "--sql") == Ended(130, "", "")


def _send(process: subprocess.Popen[str]) -> bool:
    process.terminate()
    return False


def _succeeded(work: Path) -> int:
    if not (work / ".sched" / "data").exists():
        return 0
    done = sched_process("status", "--json", cwd=work)
    return int(done.document["jobs"]["succeeded"]) if done.code == 0 else 0

"""``run: {shell: ...}``: environment, output, exit codes, time-outs and what becomes of the processes."""

from __future__ import annotations

import errno
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.handlers import HandlerRegistry
from scheduler.services.executors.supervisor import Supervisor
from scheduler.services.worker import Worker, WorkerSettings
from scheduler.storage.database import Database
from tests.support.wait import wait_for
from tests.support.worker_process import is_alive, supervisors_of
from tests.support.working import RunningWorker, attempts_of, enqueue, job_row, running_worker, wait_for_status


def run(dsn: str, shell: Any, payload: Any = None, environment: dict[str, str] | None = None, **columns: Any) -> Any:
    """Run one shell job to its end and return its row."""
    job_id = enqueue(dsn, "run.shell", payload, run={"shell": shell}, **columns)
    settings = WorkerSettings(name="test", lease=timedelta(seconds=5))
    RunningWorker(Worker(Database(dsn), HandlerRegistry(), settings, environment or {}), drain=True).join()
    return job_row(dsn, job_id)


def stdout(row: Any) -> str:
    assert row["status"] == "succeeded", row["last_error"]
    return str(row["result"]["stdout_tail"])


def test_a_script_and_an_argument_list_run(database: str) -> None:
    assert stdout(run(database, "echo one; echo two")) == "one\ntwo\n"
    assert stdout(run(database, {"script": "echo three"})) == "three\n"
    assert stdout(run(database, ["printf", "%s|", "a b", "$HOME", "*"])) == "a b|$HOME|*|"
    assert stdout(run(database, {"command": ["echo", "x"]})) == "x\n"


def test_values_arrive_as_environment_variables_and_are_never_spliced(database: str) -> None:
    evil = "'; touch hacked; $(touch hacked) `touch hacked` \"\n\\"
    script = (
        'printf %s "$SCHED_PAYLOAD_SOURCE"; printf "|%s" "$SCHED_PAYLOAD_N_1" "$SCHED_PAYLOAD_FLAG" "$SCHED_ATTEMPT"'
    )
    row = run(database, script, {"source": evil, "n-1": 7, "flag": True, "list": [1]}, idempotency_key="k")
    assert stdout(row) == f"{evil}|7|true|1"
    assert stdout(run(database, 'printf %s "$SCHED_PAYLOAD"', {"list": [1]})) == '{"list": [1]}'
    assert stdout(run(database, 'printf %s "$SCHED_IDEMPOTENCY_KEY"', idempotency_key="k:2")) == "k:2"


def test_the_environment_is_an_allow_list_plus_what_is_asked_for(database: str) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "AWS_SECRET": "s3", "TOKEN": "t"}
    shell = {"script": "env | cut -d= -f1 | sort", "env": {"PLAIN": "1", "GIVEN": {"from_env": "TOKEN"}}}
    names = stdout(run(database, shell, environment=environment)).split()
    assert {"PATH", "LC_ALL", "PLAIN", "GIVEN", "SCHED_JOB_ID"} <= set(names)
    assert not {"AWS_SECRET", "TOKEN", "SCHED_DSN"} & set(names)


def test_the_dsn_of_the_worker_is_passed_on_when_asked_for(database: str) -> None:
    shell = {"script": 'printf %s "$SCHED_DSN"', "env": {"SCHED_DSN": {"from_env": "SCHED_DSN"}}}
    assert stdout(run(database, shell)) == database


def test_a_variable_that_the_worker_lacks_fails_the_attempt_by_name(database: str) -> None:
    row = run(database, {"script": "true", "env": {"A": {"from_env": "NOT_THERE"}}})
    assert row["status"] == "scheduled"
    assert "NOT_THERE" in row["last_error"]


def test_another_exit_code_is_a_failure_with_the_end_of_stderr(database: str) -> None:
    row = run(database, "echo working; echo went wrong >&2; exit 7")
    assert row["last_error"] == "exit code 7\nwent wrong"
    assert attempts_of(database, row["id"])[0]["metadata"] == {"exit_code": 7}


def test_the_first_failing_command_of_a_script_fails_the_job(database: str) -> None:
    assert run(database, "false\necho never")["last_error"] == "exit code 1"


def test_a_signal_is_named(database: str) -> None:
    assert run(database, "kill -9 $$")["last_error"] == "ended by SIGKILL"


@pytest.mark.parametrize("shell", [["/no/such/program"], {"script": ""}, "x\0y", 5])
def test_a_command_that_cannot_start_is_a_failed_attempt(database: str, shell: Any) -> None:
    if shell == "x\0y":
        shell = ["/bin/true", {"from_env": "HOME"}]  # HOME is not in the worker's environment here
    assert run(database, shell)["status"] == "scheduled"


def test_only_the_end_of_a_large_output_is_kept(database: str) -> None:
    text = stdout(run(database, "head -c 3000000 /dev/zero | tr '\\0' x; echo end"))
    assert text.startswith("[... ") and text.endswith("xend\n")
    assert 64 * 1024 <= len(text) <= 64 * 1024 + 100


def test_output_that_is_not_text_is_stored_with_replacements(database: str) -> None:
    assert stdout(run(database, r"printf 'a\000b\377c'")) == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


def test_a_time_out_ends_the_whole_process_group(database: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        f"sh -c 'echo $$ >> {pids}; sleep 600' & sh -c 'echo $$ >> {pids}; trap \"\" TERM; sleep 600 & wait' & wait"
    )
    row = run(database, script, timeout=timedelta(milliseconds=500))
    assert attempts_of(database, row["id"])[0]["outcome"] == "timed_out"
    wait_for(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()), 10, "the processes to end")


def test_what_a_command_leaves_behind_in_its_group_is_ended(database: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    row = run(database, f"sleep 600 & echo $! > {pid}; echo started")
    assert stdout(row) == "started\n"
    wait_for(lambda: not is_alive(int(pid.read_text())), 10, "the process to end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_supervisor_costs_nothing(database: str, tmp_path: Path, number: signal.Signals) -> None:
    go_on = tmp_path / "go-on"
    with running_worker(database, HandlerRegistry()) as running:
        job_id = enqueue(database, "run.shell", run={"shell": f"until [ -e {go_on} ]; do sleep 0.05; done"})
        (supervisor,) = wait_for(lambda: supervisors_of(os.getpid()), 10, "the supervisor to be there")
        os.kill(supervisor, number)
        if number is signal.SIGKILL:
            wait_for(lambda: not is_alive(supervisor), 10, "the supervisor to end")
        go_on.touch()
        wait_for_status(database, job_id, "succeeded")
        assert is_alive(supervisor) == (number is signal.SIGTERM)
    assert running.result is not None and running.result.succeeded == 1
    wait_for(lambda: not is_alive(supervisor), 10, "the supervisor to end with its worker")


def test_a_command_that_its_supervisor_cannot_be_told_of_is_ended_and_fails(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"

    def no_more_processes(supervisor: Supervisor, group: int) -> None:
        wait_for(lambda: pid.exists() and pid.read_text(), 10, "the command to run")
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(Supervisor, "watch", no_more_processes)
    row = run(database, f"echo $$ > {pid}; exec sleep 600")
    assert not is_alive(int(pid.read_text()))
    assert row["last_error"].startswith("the shell that would end the command with its worker does not start: ")

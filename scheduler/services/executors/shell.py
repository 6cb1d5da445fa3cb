"""Runs ``run: {shell: ...}``: a command in its own process group, bounded in time and output.

Nothing is spliced into the text: what the job knows arrives in ``SCHED_*`` environment variables, beside an allow-list
of the worker's own environment and what ``env`` names. A script runs under ``/bin/sh -e``, so that its first failing
command fails the job. The whole group is ended when the command has ended, at a time-out, and at a cancel: first
SIGTERM, then SIGKILL. Should the worker be killed, its supervisor ends the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from scheduler.handlers import Job
from scheduler.services.executors import WorkFailed
from scheduler.services.executors.supervisor import Supervisor

OUTPUT_LIMIT = 64 * 1024
ERROR_LINES_LIMIT = 4000
TERMINATE_SECONDS = 5.0

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "PGPASSFILE", "PGSERVICEFILE")
_INHERITED_PREFIX = "LC_"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_EXIT_POLL_SECONDS = 0.05


class ShellRunner:
    """Runs shell jobs; ``environment`` is the worker's own, from which ``from_env`` values are taken."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._supervisor = Supervisor()
        self.patience = TERMINATE_SECONDS
        """Seconds between SIGTERM and SIGKILL; a worker that must stop at once sets it to zero."""

    async def run(self, job: Job) -> dict[str, Any]:
        """Run the command to its end. Returns exit code and the tail of stdout; raises WorkFailed for other codes."""
        settings = shell_settings(job.run)
        arguments = self._arguments(settings)
        environment = self._child_environment(job, settings.get("env") or {})
        process = _started(arguments, environment)
        stdout, stderr = Tail(process.stdout, OUTPUT_LIMIT), Tail(process.stderr, OUTPUT_LIMIT)
        try:
            self._watch(process)
            with stdout, stderr:
                await _exited(process)
        finally:
            await _end_group(process, self.patience)
            self._supervisor.forget(process.pid)
            code = process.wait()
            stdout.finish()
            stderr.finish()
        job.metadata["exit_code"] = code
        if code != 0:
            raise WorkFailed(_failure_text(code, stderr.text()[-ERROR_LINES_LIMIT:]))
        return {"exit_code": 0, "stdout_tail": stdout.text()}

    def close(self) -> None:
        """No more commands will be run."""
        self._supervisor.close()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        try:
            self._supervisor.watch(process.pid)
        except OSError as error:
            raise WorkFailed(f"the shell that would end the command with its worker does not start: {error}") from error

    def _arguments(self, settings: Mapping[str, Any]) -> list[str]:
        if settings.get("command"):
            return [self._resolved(value) for value in settings["command"]]
        return ["/bin/sh", "-e", "-c", settings["script"], "sched"]

    def _child_environment(self, job: Job, asked: Mapping[str, Any]) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in self._environment.items()
            if name in _INHERITED or name.startswith(_INHERITED_PREFIX)
        }
        return {
            "PATH": _DEFAULT_PATH,
            **inherited,
            **_payload_variables(job.payload),
            **_job_variables(job),
            **{name: self._resolved(value) for name, value in asked.items()},
        }

    def _resolved(self, value: Any) -> str:
        if not isinstance(value, dict):
            return str(value)
        name = value["from_env"]
        if name not in self._environment:
            raise WorkFailed(f'the environment variable {name}, named by "from_env", is not set in the worker')
        return self._environment[name]


def _started(arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise WorkFailed(f"the command {arguments[0]!r} does not start: {error}") from error


class Tail:
    """Reads a pipe on the running event loop and keeps only its last ``limit`` bytes."""

    def __init__(self, pipe: Any, limit: int) -> None:
        self._pipe = pipe
        self._limit = limit
        self._kept = bytearray()
        self._left_out = 0
        os.set_blocking(pipe.fileno(), False)

    def __enter__(self) -> Tail:
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._read)
        return self

    def __exit__(self, *exception: object) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    def finish(self) -> None:
        """Read what the pipe still holds and close it. Call it when its writers have ended."""
        left = self._limit * 4  # somebody who left the process group may write for ever
        while left > 0 and (size := self._read_once()):
            left -= size
        self._pipe.close()

    def text(self) -> str:
        """What was kept, as text; a first line says how much was not."""
        kept = self._kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        return f"[... {self._left_out:,} bytes left out ...]\n{kept}" if self._left_out else kept

    def _read(self) -> None:
        if self._read_once() == 0:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    def _read_once(self) -> int | None:
        try:
            data = os.read(self._pipe.fileno(), self._limit)
        except BlockingIOError:
            return None
        self._kept += data
        if (excess := len(self._kept) - self._limit) > 0:
            del self._kept[:excess]
            self._left_out += excess
        return len(data)


def shell_settings(run: Any) -> Mapping[str, Any]:
    """The settings under ``shell``, whichever way they were written: text, argument list, or mapping."""
    settings = run.get("shell") if isinstance(run, dict) else None
    if isinstance(settings, str):
        settings = {"script": settings}
    if isinstance(settings, list):
        settings = {"command": settings}
    if not isinstance(settings, dict) or not (settings.get("command") or settings.get("script")):
        raise WorkFailed("the job has no shell command: its `run` must be {shell: <script, or list of arguments>}")
    return settings


def _job_variables(job: Job) -> dict[str, str]:
    values: dict[str, object | None] = {
        "SCHED_JOB_ID": job.id,
        "SCHED_ATTEMPT": job.attempt,
        "SCHED_SCHEDULE": job.schedule,
        "SCHED_LOGICAL_DATE": _instant(job.logical_date),
        "SCHED_LOCAL_DATE": job.local_date,
        "SCHED_INTERVAL_START": _instant(job.interval_start),
        "SCHED_INTERVAL_END": _instant(job.interval_end),
        "SCHED_COVERS_FROM": _instant(job.covers_from),
        "SCHED_IDEMPOTENCY_KEY": job.idempotency_key,
        "SCHED_PAYLOAD": json.dumps(job.payload, ensure_ascii=False),
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _payload_variables(payload: Any) -> dict[str, str]:
    """Scalars at the top of the payload: SCHED_PAYLOAD_<KEY>, booleans and null as in JSON."""
    if not isinstance(payload, dict):
        return {}
    return {
        "SCHED_PAYLOAD_" + re.sub(r"[^A-Z0-9_]", "_", key.upper()): value
        if isinstance(value, str)
        else json.dumps(value)
        for key, value in payload.items()
        if value is None or isinstance(value, str | int | float | bool)
    }


def _instant(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z") if at is not None else None


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended, without reaping it: its group's id stays ours until we have ended the group."""
    try:
        watched = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or a kernel before 5.3
        while not _has_exited(process.pid):
            await asyncio.sleep(_EXIT_POLL_SECONDS)
        return
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(watched, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)


async def _end_group(process: subprocess.Popen[bytes], patience: float) -> None:
    """End every process of the group: politely while the command itself still runs, then for certain."""
    if not _has_exited(process.pid):
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(_exited(process), patience)
    _signal_group(process.pid, signal.SIGKILL)


def _has_exited(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _failure_text(code: int, errors: str) -> str:
    how = f"exit code {code}" if code > 0 else f"ended by {_signal_name(-code)}"
    return f"{how}\n{errors}".rstrip()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""Runs handlers with ``isolation="process"``: one job at a time in a child process of its own.

For work that may crash, hold the interpreter, or never end: whatever it does to its process, the worker records a
failed attempt and goes on. A child is a fresh interpreter, kept for the next job while all is well, and ended with its
whole process group otherwise. See ``child`` for the other side.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

from scheduler.core.models import AttemptOutcome
from scheduler.handlers import Job
from scheduler.services.executors import SUCCEEDED, Execution, WorkFailed
from scheduler.services.executors.channel import Channel, ChannelClosed
from scheduler.storage.jobs import Ending

CHILD = "scheduler.services.executors.child"
FAREWELL_SECONDS = 2.0


class ProcessRunner:
    """Runs jobs in children and keeps idle ones; ``run`` blocks its thread until the job has ended."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._is_closed = False

    def run(self, job: Job, reference: str) -> Ending:
        """Run the function ``module:name`` with this job. Raises WorkFailed when its process dies."""
        execution = job.control
        assert isinstance(execution, Execution)
        child = self._take() or Child(self._dsn)
        execution.stop = child.kill
        try:
            if execution.is_cancelled:  # before there was anything to stop
                child.kill()
            return child.run(execution, reference)
        except ChannelClosed:
            raise WorkFailed(child.last_words()) from None
        finally:
            execution.stop = None
            self._give_back(child)

    def close(self) -> None:
        """End the idle children. Those at work are ended through their executions."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()

    def _take(self) -> Child | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                child = self._idle.pop()
            if child.is_alive:
                return child
            child.kill()

    def _give_back(self, child: Child) -> None:
        with self._lock:
            if child.is_alive and not self._is_closed:
                self._idle.append(child)
                return
        child.kill()


class Child:
    """One child process and the channel to it. Only ``kill`` may be called from another thread."""

    def __init__(self, dsn: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", CHILD, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a handler prints belongs to the logs
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        self._channel = Channel(ours)
        self._lock = threading.Lock()
        self._is_killed = False
        self._code: int | None = None
        with contextlib.suppress(ChannelClosed):  # it died at once: the first job will tell
            self._channel.send(pickle.dumps(dsn))

    @property
    def is_alive(self) -> bool:
        """Whether it can take another job."""
        with self._lock:
            return not self._is_killed and _exit_status(self._process.pid) is None

    def run(self, execution: Execution, reference: str) -> Ending:
        """Send the job and wait for its end. Raises ChannelClosed when the child dies."""
        self._channel.send(pickle.dumps((reference, execution.job.facts())))
        while True:
            # Answers are JSON, no pickles: what runs in the child has no business in our memory.
            answer: dict[str, Any] = json.loads(self._channel.receive())
            if answer.pop("is_completing", False):
                execution.is_completing = True
                self._channel.send(b"")
            elif "progress" in answer:
                execution.report(*answer["progress"])
            elif "is_settled" in answer:
                if answer["is_settled"]:
                    execution.is_settled = True
                    execution.ending = SUCCEEDED
                execution.is_completing = False
            else:
                return _ending(answer)

    def kill(self) -> None:
        """End the child and everything in its process group, at once. May be called again."""
        with self._lock:
            if self._is_killed:
                return
            self._is_killed = True
            self._code = _exit_status(self._process.pid)
            # It is not reaped yet, so that the group's id is still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._channel.close()

    def last_words(self) -> str:
        """Why there was no answer, for the attempt's error."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        while self.is_alive and time.monotonic() < deadline:
            time.sleep(0.01)  # the channel closes a moment before the process has ended
        with self._lock:
            code = self._code if self._is_killed else _exit_status(self._process.pid)
            was_ended_by_us = self._is_killed and code is None
        if was_ended_by_us:
            return "the job's process was ended: it was asked to stop"
        if code is None:
            return "the job's process closed its channel to the worker"
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return f"the job's process was ended by {_signal_name(-code)}{hint}"
        return f"the job's process ended with exit code {code} before the handler returned"


def _ending(answer: dict[str, Any]) -> Ending:
    delay = answer["delay"]
    return Ending(
        outcome=AttemptOutcome(answer["outcome"]),
        result=answer["result"],
        error=answer["error"],
        delay=None if delay is None else timedelta(seconds=delay),
        metadata=answer["metadata"],
    )


def _exit_status(pid: int) -> int | None:
    """Exit code of a child that has ended, negative for a signal, without reaping it; None while it runs."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

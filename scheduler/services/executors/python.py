"""Runs registered handlers: ``async`` ones on one event loop in its own thread, plain ones on a pool of threads.

A handler's exception never leaves here; it becomes an ending. ``async`` work is ended by cancelling its task. A thread
cannot be ended: one that overruns is left alone, and its slot stays taken until it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Sequence
from datetime import timedelta

from scheduler.handlers import Job
from scheduler.services.executors import Execution, Function, Report, failure, success, timed_out
from scheduler.storage.jobs import Ending


class EventLoopExecutor:
    """Runs ``async`` functions on an event loop of its own, started with the first work."""

    def __init__(self, name: str, report: Report) -> None:
        self._name = name
        self._report = report
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._finished: list[tuple[Execution, Ending]] = []

    def start(self, work: Sequence[tuple[Execution, Function]]) -> None:
        """Begin all of these; returns at once."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(self._launch, work)

    def close(self, patience: float) -> None:
        """Cancel what runs, give it a moment to clean up, and end the thread."""
        if self._loop is None or self._thread is None:
            return
        loop, self._loop = self._loop, None
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(patience)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(patience)
        if not self._thread.is_alive():  # a handler that blocks the loop keeps it; the process is about to end
            loop.close()

    def _launch(self, work: Sequence[tuple[Execution, Function]]) -> None:
        loop = asyncio.get_running_loop()
        for execution, function in work:
            task = loop.create_task(self._run(execution, function))
            execution.stop = lambda task=task: loop.call_soon_threadsafe(task.cancel)
            if execution.is_cancelled:
                task.cancel()

    async def _run(self, execution: Execution, function: Function) -> None:
        job = execution.job
        try:
            if job.timeout is None:
                ending = success(job, await function(job))
            else:
                ending = await _within_timeout(job, function, job.timeout)
        except BaseException as error:
            ending = failure(execution, error)
        # Reported once per turn of the loop, so that a batch of short jobs is settled as a batch.
        if not self._finished:
            asyncio.get_running_loop().call_soon(self._flush)
        self._finished.append((execution, ending))

    def _flush(self) -> None:
        finished, self._finished = self._finished, []
        self._report(finished)


class ThreadExecutor:
    """Runs plain functions on daemon threads: as many as were ever needed at once, kept for the next job."""

    def __init__(self, name: str, report: Report) -> None:
        self._name = name
        self._report = report
        self._work: queue.SimpleQueue[tuple[Execution, Function] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._outstanding = 0
        self._threads = 0

    def start(self, work: Sequence[tuple[Execution, Function]]) -> None:
        """Begin all of these; returns at once."""
        with self._lock:
            self._outstanding += len(work)
            missing = self._outstanding - self._threads
            for _ in range(missing):
                self._threads += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
        for item in work:
            self._work.put(item)

    def close(self, patience: float) -> None:
        """Let idle threads end; busy ones cannot be ended and die with the process."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            execution, function = item
            try:
                ending = success(execution.job, function(execution.job))
            except BaseException as error:
                ending = failure(execution, error)
            with self._lock:
                self._outstanding -= 1
            self._report([(execution, ending)])
            del item, execution, ending  # an idle thread keeps no job alive


async def _within_timeout(job: Job, function: Function, timeout: timedelta) -> Ending:
    try:
        async with asyncio.timeout(timeout.total_seconds()) as scope:
            returned = await function(job)
    except TimeoutError:
        if scope.expired():
            return timed_out(job)
        raise  # the handler's own
    return success(job, returned)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""The child process of ``process``: imports the handler, runs one job after another, and answers over the channel.

Ends when the worker does. Makes itself the first choice of the kernel when memory runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import os
import pickle
import select
import socket
import sys
import threading
from functools import reduce
from pathlib import Path
from typing import Any

from scheduler.handlers import Job
from scheduler.services.executors import Execution, failure, success
from scheduler.services.executors.channel import Channel, ChannelClosed
from scheduler.storage.database import Database
from scheduler.storage.jobs import Ending

OOM_SCORE = "500"
REPORT_SECONDS = 0.5
"""How often the worker hears of progress that is new, however often the handler reports it."""


class ChildExecution(Execution):
    """An attempt in a child. The worker hears of a completion before it is sent, or it would take it for a loss.

    A thread of its own, begun with the first report, tells the worker of progress.
    """

    __slots__ = ("beginning", "channel", "has_returned", "reporter")

    def __init__(self, job: Job, database: Database, channel: Channel) -> None:
        super().__init__(job, database, extended_at=0.0, trusted_until=float("inf"))
        self.channel = channel
        self.has_returned = threading.Event()
        self.reporter: threading.Thread | None = None
        self.beginning = threading.Lock()

    def report(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress, for the thread that tells the worker."""
        super().report(fraction, note)
        with self.beginning:
            if self.reporter is None:
                self.reporter = threading.Thread(target=self._tell_progress, daemon=True)
                self.reporter.start()

    def end_reports(self) -> None:
        """The handler has returned: what is sent from here on belongs to the next job."""
        self.has_returned.set()
        if self.reporter is not None:
            self.reporter.join()

    def _tell_progress(self) -> None:
        told = None
        with contextlib.suppress(ChannelClosed):  # the worker is gone, and this process ends
            while not self.has_returned.is_set():
                newest = self.progress
                if newest != told:
                    self.channel.send(json.dumps({"progress": newest}).encode())
                    told = newest
                self.has_returned.wait(REPORT_SECONDS)

    def begin_completing(self) -> None:
        """Tell the worker, and go on when it knows."""
        self.channel.send(b'{"is_completing": true}')
        self.channel.receive()
        super().begin_completing()

    def end_completing(self) -> None:
        """Tell the worker how it went."""
        super().end_completing()
        self.channel.send(json.dumps({"is_settled": self.is_settled}).encode())


def main(descriptor: int) -> None:
    """Serve jobs until the worker is gone."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    end = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_worker, args=(end,), daemon=True).start()
    channel = Channel(end)
    with contextlib.suppress(ChannelClosed):
        database = Database(pickle.loads(channel.receive()))
        while True:
            reference, facts = pickle.loads(channel.receive())
            execution = ChildExecution(Job(**facts), database, channel)
            ending = _attempt(execution, reference)
            execution.end_reports()
            channel.send(_message(ending))


def _attempt(execution: Execution, reference: str) -> Ending:
    try:
        function = _function(reference)
        returned = function(execution.job)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
        return success(execution.job, returned)
    except ChannelClosed:
        raise
    except BaseException as error:
        return failure(execution, error)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _function(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return reduce(getattr, name.split("."), importlib.import_module(module))


def _message(ending: Ending) -> bytes:
    return json.dumps(
        {
            "outcome": ending.outcome.value,
            "result": ending.result,
            "error": ending.error,
            "delay": None if ending.delay is None else ending.delay.total_seconds(),
            "metadata": ending.metadata,
        }
    ).encode()


def _end_with_worker(end: socket.socket) -> None:
    """End the process when the other side of the channel is closed, whatever the handler does."""
    watched = select.poll()
    watched.register(end, select.POLLRDHUP | select.POLLHUP)
    watched.poll()
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))

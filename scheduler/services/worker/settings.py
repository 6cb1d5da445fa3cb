"""How a worker is set up, and what it reports at its end."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta

from scheduler.errors import ConfigError

SHORTEST_LEASE = timedelta(seconds=1)


def _default_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What to work on and how.

    ``concurrency`` jobs run at once; ``batch`` is the most that one statement claims or settles. ``poll`` bounds how
    long a job waits for an idle worker when no hint arrives. ``shutdown_grace`` is how long running jobs may go on
    after the first stop signal.
    """

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 10
    batch: int = 500
    lease: timedelta = timedelta(seconds=15)
    poll: timedelta = timedelta(seconds=1)
    shutdown_grace: timedelta = timedelta(seconds=30)
    name: str = field(default_factory=_default_name)

    def __post_init__(self) -> None:
        if not self.queues or not all(self.queues):
            raise ConfigError("a worker needs at least one queue")
        if self.concurrency < 1 or self.batch < 1:
            raise ConfigError(f"concurrency is {self.concurrency}, batch {self.batch}: both must be at least 1")
        if self.lease < SHORTEST_LEASE:
            raise ConfigError(f"the lease is {self.lease.total_seconds():g}s: it must be at least 1s")
        if self.poll <= timedelta(0):
            raise ConfigError("the poll interval must be longer than zero")

    @property
    def trust(self) -> timedelta:
        """How long after a claim or heartbeat was sent its lease is taken for certain; the database gives ``lease``."""
        return self.lease * 0.9

    @property
    def heartbeat_interval(self) -> timedelta:
        """The longest time between two heartbeats of a job."""
        return self.lease / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResult:
    """How many jobs a worker claimed and how its attempts ended; ``failed`` includes time-outs."""

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    discarded: int = 0
    held: int = 0
    cancelled: int = 0
    lost: int = 0
    handed_back: int = 0

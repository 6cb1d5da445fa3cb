"""What authors of handlers use: ``@handler``, the job they are given, and what they may raise to steer it.

A handler is a plain or an ``async`` function of one argument, registered under the job type that definitions name:

    @handler("ingest.daily")
    def ingest(job: Job) -> dict[str, int]:
        return {"rows": load(job.payload["source"], job.interval_start, job.interval_end)}

Its JSON return value is the job's result. This module imports nothing of ours but the errors. How handlers are run
is in ``services.executors``.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from scheduler.errors import ConfigError, SchedulerError, shown_value

Function = TypeVar("Function", bound=Callable[..., Any])
Isolation = Literal["process"]


class Retry(Exception):
    """The attempt is spent and the job is tried again: after ``after``, or after its usual backoff.

    Raises TypeError for an ``after`` that is no timedelta.
    """

    def __init__(self, reason: str = "", *, after: timedelta | None = None) -> None:
        if not isinstance(after, timedelta | None):
            raise TypeError(f"Retry(after={shown_value(after)}): pass a timedelta, such as timedelta(seconds=30)")
        super().__init__(reason or "the handler asked for a retry")
        self.after = after


class Discard(Exception):
    """The job can never succeed: it is dead at once, whatever attempts are left."""


class Hold(Exception):
    """The job waits for a person, who releases or cancels it."""


class Cancel(Exception):
    """The job is not wanted any more."""


class LeaseLost(SchedulerError):
    """The job is not ours any more: what ``transaction()`` wrote was rolled back, and another attempt decides."""


class Control(Protocol):
    """What stands behind a job while it runs."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the handler is asked to stop."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """See ``Job.transaction``."""
        ...

    def report(self, fraction: float, note: str | None) -> None:
        """See ``Job.progress``; the fraction is one."""
        ...


class Detached:
    """Stands behind a job that no worker holds, as in a handler's own unit test."""

    is_cancelled = False

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        raise LeaseLost("this job was not claimed by a worker")
        yield

    def report(self, fraction: float, note: str | None) -> None:
        """Nobody is told."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One attempt at a job, as its handler sees it. Instants are UTC; dates are None for jobs without a schedule.

    The data interval is ``(interval_start, interval_end]``; ``covers_from`` is set when the job also stands for
    earlier dates that were coalesced into it. ``metadata`` is stored with the attempt, whatever its outcome.
    ``result`` is what the handler returns; set it only to complete with ``transaction``.
    """

    id: int
    job_type: str
    payload: Any = field(default_factory=dict)
    run: Any = None
    queue: str = "default"
    attempt: int = 1
    max_attempts: int = 1
    timeout: timedelta | None = None
    idempotency_key: str | None = None
    schedule: str | None = None
    logical_date: datetime | None = None
    local_date: date | None = None
    interval_start: datetime | None = None
    interval_end: datetime | None = None
    covers_from: datetime | None = None
    generation: int = 1
    origin: str = "enqueue"
    lease_token: str = field(default="", repr=False)
    metadata: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    control: Control = field(default=Detached(), repr=False)

    def facts(self) -> dict[str, Any]:
        """Everything but what stands behind the job: what another process needs to make it again."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "control"}

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop: cancelled by a person, out of time, or its lease is lost.

        Work in threads has to look; ``async`` handlers and commands are ended.
        """
        return self.control.is_cancelled

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Say how far this attempt is: a fraction from 0 to 1, and a few words, as in ``progress(0.4, "page 40")``.

        Costs next to nothing: the newest is stored about once a second, when it differs, and only while the lease
        is ours. The note is kept as error texts are, at most 200 characters of it. Raises ValueError for a number
        that is no fraction.
        """
        self.control.report(_fraction(fraction), None if note is None else str(note))

    def transaction(self) -> AbstractContextManager[Any]:
        """A database connection in a transaction that commits what is written and the job's completion together.

        Set ``job.result`` inside the block; what the handler returns afterwards is ignored. Raises LeaseLost at the
        end of the block, and rolls back, when the job is not ours any more. An exception inside rolls back too, and
        the job goes on. In an ``async`` handler call it in ``asyncio.to_thread``.
        """
        return self.control.transaction()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A registered function."""

    job_type: str
    function: Callable[[Job], Any]
    is_async: bool
    isolation: Isolation | None = None

    @property
    def reference(self) -> str:
        """``module:name``, by which another process finds the function."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


class HandlerRegistry:
    """Job types and their handlers."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def handler(self, job_type: str, *, isolation: Isolation | None = None) -> Callable[[Function], Function]:
        """Register the decorated function.

        With ``isolation="process"`` it runs in a process of its own, which may crash, hold the interpreter or run out
        of memory without harm to other jobs, and which ends at a time-out. It must then be importable by name.
        Raises ConfigError when it is not, or when the type is taken by another function.
        """

        def register(function: Function) -> Function:
            if isolation == "process" and ("<" in function.__qualname__ or function.__module__ == "__main__"):
                raise ConfigError(
                    f'the handler of "{job_type}" cannot run in a process of its own: '
                    f"{_place(function)} is not at the top of an importable module; move it there"
                )
            known = self._handlers.get(job_type)
            if known is not None and _place(known.function) != _place(function):
                raise ConfigError(
                    f'two handlers are registered for "{job_type}": '
                    f"{_place(known.function)} and {_place(function)}; rename one"
                )
            self._handlers[job_type] = Handler(
                job_type=job_type,
                function=function,
                is_async=inspect.iscoroutinefunction(function),
                isolation=isolation,
            )
            return function

        return register

    def find(self, job_type: str) -> Handler | None:
        """The handler of a job type."""
        return self._handlers.get(job_type)

    @property
    def job_types(self) -> tuple[str, ...]:
        """All registered types in alphabetical order."""
        return tuple(sorted(self._handlers))


REGISTRY = HandlerRegistry()
"""Where the module-level ``handler`` registers."""

handler = REGISTRY.handler


def load_app(*module_names: str) -> HandlerRegistry:
    """Import the modules that register handlers, also from the current directory; returns the registry.

    Raises ConfigError with one sentence when a module is missing or fails to import.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    for name in module_names:
        try:
            importlib.import_module(name)
        except ConfigError:
            raise
        except ModuleNotFoundError as error:
            raise ConfigError(_import_fault(name, error)) from error
        except Exception as error:
            raise ConfigError(f'the app module "{name}" fails to import: {type(error).__name__}: {error}') from error
    return REGISTRY


def _fraction(given: Any) -> float:
    try:
        fraction = round(float(given), 4)
    except (TypeError, ValueError, OverflowError):
        fraction = math.nan
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress {shown_value(given)} is not a fraction: write a number from 0 to 1, such as 0.4")
    return fraction


def _import_fault(name: str, error: ModuleNotFoundError) -> str:
    if error.name and (name == error.name or name.startswith(f"{error.name}.")):
        return f'there is no module "{name}", here or among the installed ones: --app takes a name like "team.jobs"'
    return f'the app module "{name}" needs the module "{error.name}", which is not installed'


def _place(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"

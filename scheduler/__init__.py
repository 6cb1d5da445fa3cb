"""sched: recurring work on PostgreSQL, decided once per logical date. Public names only.

They are imported when first used, so that ``import scheduler`` costs nothing and nobody loads a driver for ``firings``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.core.jobs.new_job import Enqueued as Enqueued
    from scheduler.core.jobs.new_job import NewJob as NewJob
    from scheduler.core.time.occurrences import firings as firings
    from scheduler.errors import ConfigError as ConfigError
    from scheduler.errors import DefinitionError as DefinitionError
    from scheduler.handlers import Cancel as Cancel
    from scheduler.handlers import Discard as Discard
    from scheduler.handlers import Hold as Hold
    from scheduler.handlers import Job as Job
    from scheduler.handlers import LeaseLost as LeaseLost
    from scheduler.handlers import Retry as Retry
    from scheduler.handlers import handler as handler
    from scheduler.services.enqueue import enqueue as enqueue
    from scheduler.services.enqueue import enqueue_async as enqueue_async
    from scheduler.services.enqueue import enqueue_many as enqueue_many
    from scheduler.services.enqueue import enqueue_many_async as enqueue_many_async

__version__ = "0.1.0"

_PLACES = {
    "Cancel": "scheduler.handlers",
    "ConfigError": "scheduler.errors",
    "DefinitionError": "scheduler.errors",
    "Discard": "scheduler.handlers",
    "Enqueued": "scheduler.core.jobs.new_job",
    "Hold": "scheduler.handlers",
    "Job": "scheduler.handlers",
    "LeaseLost": "scheduler.handlers",
    "NewJob": "scheduler.core.jobs.new_job",
    "Retry": "scheduler.handlers",
    "enqueue": "scheduler.services.enqueue",
    "enqueue_async": "scheduler.services.enqueue",
    "enqueue_many": "scheduler.services.enqueue",
    "enqueue_many_async": "scheduler.services.enqueue",
    "firings": "scheduler.core.time.occurrences",
    "handler": "scheduler.handlers",
}

__all__ = ["__version__", *_PLACES]


if not TYPE_CHECKING:  # with it, a type checker would believe in any name

    def __getattr__(name: str) -> object:
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(place), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})

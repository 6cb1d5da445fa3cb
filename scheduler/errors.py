"""The exception tree. Every error a user can meet carries a sentence and an exit code.

    SchedulerError            4   something of ours is broken
    |- DefinitionError        2   a person fixes a definition file or an expression
    |- ConfigError            2   a person fixes a flag, an environment variable, a date or an argument
    |- NotFound               2   a name or id that does not exist
    |- MigrationError         3   the database's schema cannot be used by this version
    |- StorageError           3   the database is unreachable or unfit
       |- TransientStorageError 3 worth retrying: connection lost, deadlock, server restarting

``LeaseLost`` and the steering exceptions of handlers live in ``scheduler.handlers``.
This module imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SchedulerError(Exception):
    """Base of all our errors; ``exit_code`` is what a command ends with when one reaches it."""

    exit_code = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a definition, where it stands and what to write instead.

    ``line`` and ``column`` count from 1; they are None for text that came without a file.
    """

    message: str
    path: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, self.path, self.message) if part)


class DefinitionError(SchedulerError):
    """One or more problems in definitions; ``problems`` lists all of them, in file order."""

    exit_code = 2

    def __init__(self, problems: str | Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(message=problems),) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(SchedulerError):
    """A flag, an environment variable, a date typed by a person or an argument of an application makes no sense."""

    exit_code = 2


class NotFound(SchedulerError):
    """A schedule, job or other named thing does not exist."""

    exit_code = 2


class StorageError(SchedulerError):
    """The database is unreachable, too old, or lacks something."""

    exit_code = 3


class TransientStorageError(StorageError):
    """A storage error that may pass by itself: lost connection, deadlock, restart."""


class MigrationError(StorageError):
    """The schema in the database cannot be used by this version of the code."""


def shown_value(value: object) -> str:
    """``value`` as messages show it: its ``repr``, cut. Python writes no whole number of over 4,300 digits."""
    try:
        return f"{value!r:.40}"
    except ValueError:
        return "(a value too long to show)"

"""The clock, as a value that is passed around.

Decisions about dates use the database's clock (see ``storage.database``). This one serves offline tools,
rates and logs, and tests, which pass a ``FixedClock``. This module imports nothing of ours.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Anything that knows what time it is."""

    def now(self) -> datetime:
        """The present instant, timezone-aware, in UTC."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class FixedClock:
    """A clock that stands still until it is set; for tests and simulation."""

    def __init__(self, at: datetime) -> None:
        self.at = at.astimezone(UTC)

    def now(self) -> datetime:
        return self.at

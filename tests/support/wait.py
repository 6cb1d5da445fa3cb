"""Waiting for a condition instead of sleeping for a guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.01


def wait_for(condition: Callable[[], T], timeout: float, what: str, *, every: float = POLL_SECONDS) -> T:
    """Call ``condition`` until it returns something true, and return that; ``every`` so many seconds.

    Raises AssertionError naming ``what`` and the last value after ``timeout`` seconds. An exception of the
    condition is not caught.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} seconds in vain for {what}; the last look gave {value!r}")
        time.sleep(every)

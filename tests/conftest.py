"""Fixtures that every test may use; they are defined in ``tests/support``."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import freezegun
import pytest

pytest_plugins = ["tests.support.database"]

# freezegun also stops the monotonic clock: without this a wait of psycopg, selectors or asyncio never returns.
freezegun.configure(extend_ignore_list=["asyncio", "psycopg", "selectors"])


@pytest.fixture(autouse=True)
def quiet_logger() -> Iterator[None]:
    """Commands that run inside the tests' process set up the log; the next test finds it as it was."""
    logger = logging.getLogger("scheduler")
    level, handlers, propagate = logger.level, logger.handlers, logger.propagate
    yield
    logger.setLevel(level)
    logger.handlers, logger.propagate = handlers, propagate

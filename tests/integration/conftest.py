"""Connections to the test's database, each statement a transaction of its own; ``one`` and ``other`` are a pair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduler.storage.database import Connection
from tests.support.database import connect


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


@pytest.fixture
def one(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


@pytest.fixture
def other(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection

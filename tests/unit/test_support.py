"""What the tests rely on: missing components skip or fail, waiting ends, servers end with their test process."""

from __future__ import annotations

import itertools

import pytest

from tests.support import require as components
from tests.support.require import require
from tests.support.wait import wait_for


@pytest.fixture
def unobtainable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that no machine has."""
    monkeypatch.setitem(components.DETECTORS, "unobtainable", lambda: None)
    monkeypatch.delenv("SCHED_REQUIRE", raising=False)


@pytest.mark.usefixtures("unobtainable")
def test_a_missing_component_skips_its_test() -> None:
    with pytest.raises(pytest.skip.Exception, match="unobtainable is not installed here"):
        require("unobtainable")


@pytest.mark.usefixtures("unobtainable")
def test_a_missing_component_that_is_demanded_fails_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_REQUIRE", "pgbouncer, unobtainable")
    with pytest.raises(pytest.fail.Exception, match="SCHED_REQUIRE demands it"):
        require("unobtainable")


def test_waiting_returns_what_the_condition_gave() -> None:
    looks = itertools.count()
    assert wait_for(lambda: next(looks) == 3 and "there", 5, "the third look") == "there"


def test_waiting_in_vain_names_what_was_awaited() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 seconds in vain for rain; the last look gave \[\]"):
        wait_for(list, 0, "rain")

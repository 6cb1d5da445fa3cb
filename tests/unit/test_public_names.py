"""The names an application imports from ``scheduler``, and that importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

import scheduler

DESIGNED = {"handler", "enqueue", "firings", "DefinitionError", "Retry", "Discard", "Hold", "Cancel", "LeaseLost"}


def test_every_public_name_is_there_and_listed() -> None:
    assert DESIGNED <= set(scheduler.__all__) <= set(dir(scheduler))
    for name in scheduler.__all__:
        assert getattr(scheduler, name) is not None


def test_firings_yields_the_instants_after_the_first_up_to_the_last() -> None:
    midnight, two_days_later = datetime(2026, 3, 28, 1, 0, tzinfo=UTC), datetime(2026, 3, 30, 0, 0, tzinfo=UTC)
    assert list(scheduler.firings("0 2 * * *", "Europe/Berlin", midnight, two_days_later)) == [
        datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
        datetime(2026, 3, 30, 0, 0, tzinfo=UTC),
    ]


@pytest.mark.parametrize(("cron", "timezone"), [("0 0 12 * * ?", "UTC"), ("0 2 * * *", "Europe/Berln")])
def test_firings_refuses_what_lint_refuses(cron: str, timezone: str) -> None:
    with pytest.raises(scheduler.DefinitionError):
        scheduler.firings(cron, timezone, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'fire'"):
        _ = scheduler.fire  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        exec("from scheduler import fire")


def test_importing_the_package_or_one_name_loads_nothing_else() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import scheduler; print(sorted(name for name in set(sys.modules) - before if name.startswith('scheduler')))\n"
        "scheduler.firings, scheduler.DefinitionError; print('psycopg' in sys.modules, 'typer' in sys.modules)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["['scheduler']", "False False"]

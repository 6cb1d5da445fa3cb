"""Settings from flags and environment."""

from __future__ import annotations

import pytest

from scheduler.config import is_debug, read_settings
from scheduler.errors import ConfigError


def test_the_flag_goes_before_the_environment() -> None:
    assert read_settings(dsn="dbname=flag", environment={"SCHED_DSN": "dbname=variable"}).dsn == "dbname=flag"


def test_the_environment_names_the_database() -> None:
    assert read_settings(environment={"SCHED_DSN": "dbname=variable"}).dsn == "dbname=variable"


def test_an_empty_variable_is_not_set() -> None:
    settings = read_settings(environment={"SCHED_DSN": " ", "SCHED_LOG": "", "SCHED_ACTOR": ""})

    assert (settings.dsn, settings.log_level) == (None, None)
    assert settings.actor


def test_the_actor_can_be_given() -> None:
    assert read_settings(environment={"SCHED_ACTOR": "deploy"}).actor == "deploy"


@pytest.mark.parametrize(
    ("dsn", "environment", "message"),
    [
        ("", {}, "--dsn is empty"),
        (None, {"SCHED_LOG": "loud"}, 'SCHED_LOG is "loud"; write one of debug, info, warning, error'),
        (None, {"SCHED_ACTOR": "a\nb"}, "SCHED_ACTOR must be at most 200 printable characters"),
        (None, {"SCHED_ACTOR": "a" * 201}, "SCHED_ACTOR must be at most 200 printable characters"),
        (None, {"SCHED_DSN": "dbname=\udcff"}, "SCHED_DSN is not UTF-8"),
    ],
)
def test_a_mistake_is_one_sentence(dsn: str | None, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(dsn=dsn, environment=environment)

    assert str(caught.value).startswith(message)


def test_debug_is_asked_for_by_a_variable() -> None:
    assert [is_debug({}), is_debug({"SCHED_DEBUG": "0"}), is_debug({"SCHED_DEBUG": "1"})] == [False, False, True]

"""Registering handlers and loading the modules that hold them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler import handlers
from scheduler.errors import ConfigError
from scheduler.handlers import HandlerRegistry, Job, LeaseLost, Retry, load_app


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> HandlerRegistry:
    """A registry in place of the global one."""
    registry = HandlerRegistry()
    monkeypatch.setattr(handlers, "REGISTRY", registry)
    monkeypatch.setattr(handlers, "handler", registry.handler)
    return registry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_decorated_function_is_found_by_its_type_and_stays_a_function(registry: HandlerRegistry) -> None:
    @registry.handler("a.b")
    def plain(job: Job) -> int:
        return 1

    @registry.handler("a.c")
    async def asynchronous(job: Job) -> int:
        return 2

    found = registry.find("a.b")
    assert found is not None and found.function is plain and not found.is_async
    found = registry.find("a.c")
    assert found is not None and found.is_async
    assert registry.find("a.d") is None
    assert registry.job_types == ("a.b", "a.c")
    assert plain(Job(id=1, job_type="a.b")) == 1


def test_one_type_cannot_have_two_functions_but_a_module_may_be_imported_twice(registry: HandlerRegistry) -> None:
    def define() -> None:
        @registry.handler("a")
        def first(job: Job) -> None:
            return None

    define()
    define()
    with pytest.raises(ConfigError, match=r'two handlers are registered for "a": .*first and .*second; rename one'):

        @registry.handler("a")
        def second(job: Job) -> None:
            return None


def test_a_module_of_the_current_directory_is_imported(registry: HandlerRegistry, folder: Path) -> None:
    (folder / "team_jobs.py").write_text(
        "from scheduler import handlers\n@handlers.handler('x')\ndef x(job): return 1\n"
    )
    assert load_app("team_jobs").job_types == ("x",)
    assert load_app("team_jobs", "team_jobs").job_types == ("x",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, 'there is no module "team_jobs"'),
        ("import not_there_at_all", 'needs the module "not_there_at_all", which is not installed'),
        ("1/0", 'the app module "team_jobs" fails to import: ZeroDivisionError: division by zero'),
        ("def", 'the app module "team_jobs" fails to import: SyntaxError'),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_sentence(
    registry: HandlerRegistry, folder: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (folder / "team_jobs.py").write_text(text)
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as caught:
        load_app("team_jobs")
    assert message in str(caught.value)


def test_a_retry_after_a_bare_number_says_what_to_pass() -> None:
    with pytest.raises(TypeError, match=r"Retry\(after=30\): pass a timedelta, such as timedelta\(seconds=30\)"):
        Retry("later", after=30)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Retry\(after=\(a value too long to show\)\): pass a timedelta"):
        Retry("later", after=10**5000)  # type: ignore[arg-type]


def test_a_job_can_be_made_by_hand_to_test_a_handler() -> None:
    job = Job(id=7, job_type="x", payload={"a": 1})
    assert not job.cancelled and job.attempt == 1 and job.metadata == {}
    with pytest.raises(LeaseLost), job.transaction():
        pass

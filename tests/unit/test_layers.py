"""Imports point one way: core <- storage <- services <- interfaces, with errors, clock, config and handlers below all.

Read from the source with ``ast``, so that imports inside functions count as well. What is allowed beyond the layers
stands in the tables here; each entry is a decision.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "scheduler"

LEAVES = ("errors", "clock", "config", "handlers")
RANK = {**dict.fromkeys(LEAVES, 0), "core": 1, "storage": 2, "services": 3, "lab": 4, "interfaces": 5}

# Parts of services that others may use; the rest is composed in interfaces. Executors run what the worker claimed.
SHARED_SERVICES = {"collector": None, "loop": None, "executors": {"worker"}}

# Subjects of core, and those that each may use beside models and storable: time below, the rest beside each other.
CORE_MAY_USE: dict[str, set[str]] = {
    "models": set(),
    "storable": set(),
    "time": {"time"},
    "ledger": {"ledger", "time"},
    "definitions": {"definitions", "time"},
    "jobs": {"jobs", "time"},
    "pgcron": set(),
}
CORE_SHARED = {"models", "storable"}

# Examples are written as a user would: with the public names only.
EXAMPLES_MAY_IMPORT = {"scheduler", "scheduler.handlers"}

# A library and the only places of ours that may import it. The lab measures the database itself: one module of it gives
# the product's statements another schema to work in (docs/decisions/0009).
ONLY_IN = {
    "psycopg": ("scheduler.storage", "scheduler.lab.schema"),
    "matplotlib": ("scheduler.lab.charts",),
    "croniter": ("scheduler.core.time.cron",),
    "dateutil": ("scheduler.core.time.rrule_check",),
    "typer": ("scheduler.interfaces",),
}

# Core neither reads a clock nor does I/O nor logs: it gets values and returns values. A lock around a cache is fine.
NOT_IN_CORE = {"asyncio", "io", "logging", "os", "random", "secrets", "socket", "subprocess", "time"}
CLOCK_READINGS = {"now", "today", "utcnow"}
EFFECTS = {"open", "print", "input"}


@dataclass(frozen=True, slots=True)
class Module:
    """A module by its dotted name, with its source."""

    name: str
    source: str
    is_package: bool = False

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and full dotted name of each import; ``from a import b`` yields ``a.b``, for b may be a module."""
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        parts = self.name.split(".") + ["__init__"] * self.is_package
        return ".".join([*parts[: -node.level], *filter(None, [node.module])])


def product_modules() -> list[Module]:
    """Every module of the product."""
    modules = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        modules.append(Module(".".join(parts[:-1] if is_package else parts), path.read_text(), is_package))
    return modules


def violations(module: Module) -> list[str]:
    """What is wrong with the imports of a module, one sentence each, in the order of the lines."""
    found = [
        (line, complaint)
        for line, target in module.imports()
        for complaint in (own_import(module.name, target), library_import(module.name, target))
        if complaint
    ]
    if part(module.name) == "core":
        found += effects_in_core(module.source)
    return [f"{module.name}:{line}: {complaint}" for line, complaint in sorted(found)]


def own_import(importer: str, target: str) -> str | None:
    if not within(target, "scheduler") or importer == "scheduler" or target == "scheduler.__version__":
        return None
    if part(importer) == "examples":
        allowed = any(target == name or target.rpartition(".")[0] == name for name in EXAMPLES_MAY_IMPORT)
        return None if allowed and part(target) not in RANK.keys() - {"handlers"} else f"an example imports {target}"
    here, there = RANK.get(part(importer)), RANK.get(part(target))
    if here is None:
        return f"{importer} belongs to no layer"
    if there is None or there > here:
        return f"{part(importer)} imports {target}, which lies above it"
    if part(importer) == part(target) == "services":
        return service_import(importer, target)
    if part(importer) == part(target) == "core":
        return core_import(importer, target)
    return None


def core_import(importer: str, target: str) -> str | None:
    mine, other = ([*name.split("."), ""][2] for name in (importer, target))
    if not mine:
        return None
    if mine not in CORE_MAY_USE:
        return f"core.{mine} belongs to no subject"
    return None if other in CORE_MAY_USE[mine] | CORE_SHARED else f"core.{mine} imports {target}"


def service_import(importer: str, target: str) -> str | None:
    """Services do not import each other: shared logic moves down, loops are composed in interfaces."""
    mine, other = ([*name.split("."), ""][2] for name in (importer, target))
    if mine == other or not mine:
        return None
    if other in SHARED_SERVICES:
        users = SHARED_SERVICES[other]
        return None if users is None or mine in users or mine in SHARED_SERVICES else f"{mine} imports {target}"
    return f"service {mine} imports {target}"


def library_import(importer: str, target: str) -> str | None:
    library = target.partition(".")[0]
    if part(importer) == "core" and library in NOT_IN_CORE:
        return f"core imports {library}"
    allowed = ONLY_IN.get(library)
    if allowed and not any(within(importer, place) for place in allowed):
        return f"{library} may be imported in {', '.join(allowed)} only"
    return None


def effects_in_core(source: str) -> list[tuple[int, str]]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        (call.lineno, f"core calls {ast.unparse(call.func)}()")
        for call in calls
        if (isinstance(call.func, ast.Attribute) and call.func.attr in CLOCK_READINGS)
        or (isinstance(call.func, ast.Name) and call.func.id in EFFECTS)
    ]


def part(name: str) -> str:
    """The layer or leaf of a dotted name of ours: its second word."""
    return [*name.split("."), ""][1]


def within(name: str, place: str) -> bool:
    return name == place or name.startswith(place + ".")


@pytest.mark.parametrize("module", product_modules(), ids=lambda module: module.name)
def test_imports_point_one_way(module: Module) -> None:
    assert violations(module) == []


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("scheduler.core.models", "import logging"),
        ("scheduler.core.models", "from time import monotonic"),
        ("scheduler.core.models", "import psycopg.rows"),
        ("scheduler.core.models", "from scheduler.storage import jobs"),
        ("scheduler.core.models", "from scheduler import storage"),
        ("scheduler.core.models", "from ..storage.jobs import claim"),
        ("scheduler.core.models", "def f():\n    import scheduler.services.tick"),
        ("scheduler.core.models", "from datetime import datetime\nseen = datetime.now()"),
        ("scheduler.core.models", "import datetime\nseen = datetime.date.today()"),
        ("scheduler.core.models", "text = open('file').read()"),
        ("scheduler.core.time.occurrences", "import croniter"),
        ("scheduler.core.time.dates", "from scheduler.core.ledger.history import History"),
        ("scheduler.core.jobs.new_job", "from scheduler.core.definitions import codec"),
        ("scheduler.core.extra", "from scheduler.core import models"),
        ("scheduler.core.time.rrule_times", "from dateutil import rrule"),
        ("scheduler.errors", "from scheduler.core.models import JobStatus"),
        ("scheduler.storage.jobs", "from scheduler.services import worker"),
        ("scheduler.services.tick", "import psycopg"),
        ("scheduler.services.executors.sql", "import psycopg"),
        ("scheduler.services.tick", "from scheduler.interfaces.cli import main"),
        ("scheduler.services.tick", "from scheduler.services import planner"),
        ("scheduler.services.tick", "from . import planner"),
        ("scheduler.services.tick", "from scheduler.services.executors import shell"),
        ("scheduler.services.tick", "import typer"),
        ("scheduler.interfaces.demo", "import psycopg"),
        ("scheduler.services.worker.worker", "from scheduler.lab import schema"),
        ("scheduler.lab.claim", "import psycopg"),
        ("scheduler.lab.run", "from scheduler.interfaces.cli import main"),
        ("scheduler.lab.report", "import matplotlib"),
        ("scheduler.examples.documents", "from scheduler.storage import jobs"),
        ("scheduler.examples.documents", "from scheduler import storage"),
        ("scheduler.utils", "from scheduler.core import models"),
    ],
)
def test_a_wrong_import_is_found(importer: str, line: str) -> None:
    assert len(violations(Module(importer, line))) == 1


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("scheduler.core.time.cron", "import croniter"),
        ("scheduler.core.time.rrule_check", "def f():\n    from dateutil import rrule"),
        ("scheduler.core.time.occurrences", "from scheduler.core.time.cron import parse_cron"),
        (
            "scheduler.core.ledger.gaps",
            "from scheduler.core.time import dates\nfrom scheduler.core.models import JobStatus",
        ),
        ("scheduler.storage.jobs", "import psycopg\nimport logging\nfrom scheduler.core import models"),
        ("scheduler.services.tick", "from scheduler.services.loop import Loop\nfrom scheduler.storage import jobs"),
        ("scheduler.services.worker.worker", "from scheduler.services.worker.heartbeat import Heartbeat"),
        ("scheduler.services.worker.worker", "from scheduler.services.executors import shell"),
        ("scheduler.services.executors.shell", "from scheduler.services.executors.python import run"),
        ("scheduler.interfaces.cli.main", "from scheduler.services import tick, worker\nimport typer"),
        ("scheduler.lab.schema", "import psycopg\nfrom scheduler.services.worker import Worker"),
        ("scheduler.examples.documents", "from scheduler import handler\nfrom scheduler.handlers import Job"),
        ("scheduler", "from scheduler.services.definitions import load"),
    ],
)
def test_a_right_import_is_left_alone(importer: str, line: str) -> None:
    assert violations(Module(importer, line)) == []

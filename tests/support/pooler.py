"""A PgBouncer in transaction mode before a server, for the time of a test."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.require import pgbouncer
from tests.support.wait import wait_for


@contextmanager
def transaction_pooler(dsn: str, directory: Path, pool_size: int = 2) -> Iterator[str]:
    """The connection string that leads through the pooler."""
    program = pgbouncer()
    assert program is not None
    parts = conninfo_to_dict(dsn)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    users, settings = directory / "users.txt", directory / "pgbouncer.ini"
    users.write_text(f'"{parts["user"]}" ""\n')
    settings.write_text(
        f"""
        [databases]
        {parts["dbname"]} = host={parts["host"]} port={parts["port"]} dbname={parts["dbname"]}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {port}
        unix_socket_dir =
        auth_type = trust
        auth_file = {users}
        pool_mode = transaction
        default_pool_size = {pool_size}
        ignore_startup_parameters = extra_float_digits
        """.replace("\n        ", "\n")
    )
    is_root = os.geteuid() == 0  # it refuses to run as root
    if is_root:
        directory.chmod(0o755)
    with (directory / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=pwd.getpwnam("nobody").pw_uid if is_root else None,
        )
    through = make_conninfo(dsn, port=port)
    try:
        wait_for(lambda: _answers(through), 10, "PgBouncer to answer")
        yield through
    finally:
        process.terminate()
        process.wait()


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True

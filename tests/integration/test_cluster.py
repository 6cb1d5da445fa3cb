"""The throw-away servers of the tests themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.cluster import Cluster, available_servers
from tests.support.database import connect
from tests.support.holder import REPOSITORY
from tests.support.require import require, system_postgres
from tests.support.wait import wait_for

OPEN_AND_WAIT = """
import sys
from pathlib import Path
from tests.support.cluster import Cluster
with Cluster.start(Path(sys.argv[1]), Path(sys.argv[2])) as cluster:
    print(cluster.dsn(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.start(next(iter(available_servers().values())).bin_dir) as running:
        yield running


def test_a_killed_server_recovers_what_was_committed_on_the_same_port(cluster: Cluster) -> None:
    with connect(cluster.dsn()) as connection:
        assert connection.execute("show fsync").fetchone() == ("on",)
        connection.execute("create table kept as select 42 as answer")
    port = cluster.port
    cluster.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(cluster.dsn())
    cluster.restart()
    assert cluster.port == port
    with connect(cluster.socket_dsn()) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_its_test_process_however_that_ends(number: signal.Signals, tmp_path: Path) -> None:
    bin_dir = next(iter(available_servers().values())).bin_dir
    with subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT, bin_dir, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        dsn = process.stdout.readline()
        psycopg.connect(dsn).close()
        process.send_signal(number)
    wait_for(lambda: refuses(dsn), 30, "the server to end")


def test_the_system_has_a_release_of_its_own() -> None:
    require("system_postgres")
    found = system_postgres()
    assert found is not None
    assert found in available_servers().values()


def refuses(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError as error:
        return "Connection refused" in str(error)
    return False

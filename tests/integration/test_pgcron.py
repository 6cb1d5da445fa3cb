"""Installing, printing, comparing and removing the pg_cron jobs, with the pg_cron that Debian ships."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from scheduler.core.pgcron import job_name
from scheduler.storage.database import Connection
from scheduler.storage.queries import queries
from tests.support.cli import Ended, sched
from tests.support.cluster import Cluster
from tests.support.database import TEMPLATE, Recycled, connect
from tests.support.pgcron import cron_rows, new_database, pg_cron_cluster

_numbers = itertools.count(1)

HOSTILE = "O'Brien\\\"; drop table jobs $$ $cron$ 100% naïve\nx"
DEFINITIONS = """
version: 1
owner: team
defaults: {timezone: America/New_York}
schedules:
  nine:
    cron: "0 9 * * *"
    job: test.noop
    payload: {text: "'; drop table sched.jobs; -- $$ $cron$ \\\\ \\" 100% naïve %s"}
  minutely: {cron: "* * * * *", job: test.noop}
  parked: {cron: "0 0 31 2 *", job: test.noop}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pg_cron_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def databases(cluster: Cluster) -> Recycled:
    new_database(cluster, TEMPLATE)
    return Recycled(cluster)


@pytest.fixture
def dsn(cluster: Cluster, databases: Recycled) -> Iterator[str]:
    with databases.lend() as dsn:
        yield dsn
        with connect(cluster.dsn()) as connection:
            connection.execute("select cron.unschedule(jobid) from cron.job")


@pytest.fixture
def database(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def there(cluster: Cluster) -> Iterator[Connection]:
    with connect(cluster.dsn()) as connection:
        yield connection


def install(dsn: str, *flags: str) -> Ended:
    return sched("install-pg-cron", *flags, "--dsn", dsn)


def installed(dsn: str) -> dict[str, Any]:
    done = install(dsn, "--json")
    assert done.code == 0, done.err
    document: dict[str, Any] = done.document
    return document


def apply(dsn: str, folder: Path, text: str = DEFINITIONS) -> None:
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    done = sched("apply", str(folder), "--dsn", dsn)
    assert done.code == 0, done.err


def psql(cluster: Cluster, script: str, *, user: str = "postgres", options: str = "") -> None:
    done = subprocess.run(
        [
            cluster.binaries.program("psql"),
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            cluster.dsn(user=user),
            "-f",
            "-",
        ],
        input=script,
        capture_output=True,
        text=True,
        env={**os.environ, "PGOPTIONS": options},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def plain_role(cluster: Cluster, database: str) -> str:
    """A role with exactly the grants that docs/pg-cron.md lists."""
    role = f"plain_{next(_numbers)}"
    with connect(cluster.dsn()) as connection:
        for statement in (
            f"create role {role} login",
            f"grant usage on schema cron to {role}",
            f"grant execute on function cron.schedule_in_database(text, text, text, text, text, boolean) to {role}",
        ):
            connection.execute(statement.encode())
    with connect(cluster.dsn(database)) as connection:
        for statement in (
            f"grant usage on schema sched to {role}",
            f"grant select, insert, update, delete on all tables in schema sched to {role}",
        ):
            connection.execute(statement.encode())
    return role


def test_installing_plans_ahead_and_records_the_host_and_again_changes_nothing(
    cluster: Cluster, dsn: str, database: str, tmp_path: Path
) -> None:
    apply(dsn, tmp_path)
    first = installed(dsn)
    assert [change["kind"] for change in first["changed"]] == ["missing"] * 3
    before = cron_rows(cluster, "*")
    with connect(dsn) as here:
        assert here.execute("select host, last_pass_at is not null from sched.state").fetchone() == ("pg_cron", True)
        planned = dict(
            here.execute(
                "select s.name, count(*) from sched.occurrences o join sched.schedules s on s.id = o.schedule_id"
                " where o.due_at > now() group by 1"
            ).fetchall()
        )
    assert 398 <= planned["nine"] <= 401
    assert 1995 <= planned["minutely"] <= 2000
    assert "parked" not in planned
    with connect(dsn) as here:
        hours = here.execute(
            "select distinct extract(hour from o.due_at at time zone 'UTC')::integer from sched.occurrences o"
            " join sched.schedules s on s.id = o.schedule_id where s.name = 'nine' order by 1"
        ).fetchall()
    assert hours == [(13,), (14,)]

    second = installed(dsn)
    assert (second["changed"], second["planned"]) == ([], 0)
    assert cron_rows(cluster, "*") == before
    with connect(dsn) as here:
        events = here.execute("select count(*) from sched.events where kind = 'host_changed'").fetchone()
    assert events == (1,)


def test_no_text_of_a_user_reaches_pg_cron(cluster: Cluster, dsn: str, database: str, tmp_path: Path) -> None:
    apply(dsn, tmp_path)
    installed(dsn)
    rows = cron_rows(cluster, "jobname, schedule, command")
    assert [row[0] for row in rows] == [job_name(kind, database) for kind in ("beat", "purge", "reap")]
    assert [row[1] for row in rows] == ["* * * * *", "17 * * * *", "* * * * *"]
    for text in ("nine", "minutely", "New_York", "0 9", "drop table", "test.noop"):
        assert not any(text in cell for row in rows for cell in row)


def test_hostile_names_are_refused_with_the_reason(dsn: str, tmp_path: Path) -> None:
    for name in ("O'Brien", 'a\\"b', "back\\\\slash", "x; drop table jobs", "$$", "$cron$", "100%", "naïve", "a\\nb"):
        text = (
            f'version: 1\nowner: team\nschedules:\n  "{name}": {{cron: "0 9 * * *", timezone: UTC, job: test.noop}}\n'
        )
        (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
        done = sched("apply", str(tmp_path), "--dsn", dsn)
        assert done.code == 2
        assert "a.yaml:4:3" in done.err


def test_hostile_payloads_fire_intact(dsn: str, tmp_path: Path) -> None:
    payload = {"text": HOSTILE, "\\": "';$$", "😀": ["$1", "%(x)s", "\u2028"]}
    body = json.dumps(
        {
            "version": 1,
            "owner": "team",
            "defaults": {"timezone": "UTC"},
            "schedules": {"every-second": {"every": "1s", "job": "test.noop", "payload": payload}},
        },
        ensure_ascii=False,
    )
    apply(dsn, tmp_path, body.replace("\u2028", "\\u2028"))
    installed(dsn)
    with connect(dsn) as here:
        here.execute("select pg_sleep_until(min(due_at)) from sched.occurrences where state = 'planned'")
        here.execute("call sched.beat()")
        row = here.execute("select payload from sched.jobs limit 1").fetchone()
    assert row == (payload,)


@pytest.mark.parametrize("options", ["", "-c standard_conforming_strings=off"])
def test_the_printed_script_makes_the_same_jobs_however_often_psql_runs_it(
    cluster: Cluster, dsn: str, options: str
) -> None:
    printed = install(dsn, "--print").out
    assert printed == install(dsn, "--print").out
    psql(cluster, printed, options=options)
    by_script = cron_rows(cluster, "*")
    psql(cluster, printed, options=options)
    assert cron_rows(cluster, "*") == by_script
    assert installed(dsn)["changed"] == []


def test_the_printed_script_takes_up_what_was_paused_or_left_behind(
    cluster: Cluster, dsn: str, there: Connection
) -> None:
    installed(dsn)
    there.execute("select cron.alter_job(jobid, active := false) from cron.job where jobname like 'sched-beat-%'")
    there.execute("update cron.job set nodeport = 1 where jobname like 'sched-reap-%'")
    psql(cluster, install(dsn, "--print").out)
    assert cron_rows(cluster, "active, nodeport") == [(True, cluster.port)] * 3


@pytest.mark.parametrize("name", [HOSTILE[:40], "x" * 63])
def test_a_database_of_any_name_is_installed_and_printed(cluster: Cluster, there: Connection, name: str) -> None:
    there.execute("select cron.unschedule(jobid) from cron.job")
    dsn = new_database(cluster, name)
    psql(cluster, install(dsn, "--print").out, options="-c standard_conforming_strings=off")
    assert [row[3] for row in cron_rows(cluster)] == [name, "postgres", name]
    assert installed(dsn)["changed"] == []
    assert install(dsn, "--uninstall").code == 0
    assert cron_rows(cluster) == []


def test_the_database_of_pg_cron_itself_needs_no_other(cluster: Cluster, there: Connection) -> None:
    assert sched("migrate", "--dsn", cluster.dsn()).code == 0
    try:
        assert installed(cluster.dsn())["cron_database"] == "postgres"
        assert [row[3] for row in cron_rows(cluster)] == ["postgres"] * 3
        assert install(cluster.dsn(), "--check").code == 0
        assert install(cluster.dsn(), "--uninstall").code == 0
    finally:
        there.execute("drop schema sched cascade")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("select cron.unschedule('{beat}')", "{beat} is missing"),
        ("select cron.alter_job(jobid, active := false) from cron.job where jobname = '{beat}'", "{beat} is paused"),
        (
            "select cron.schedule('{reap}', '*/5 * * * *', command) from cron.job where jobname = '{reap}'",
            "{reap} differs",
        ),
        ("update cron.job set database = 'template1' where jobname = '{reap}'", "{reap} differs: database"),
        ("update cron.job set nodeport = 1 where jobname = '{beat}'", "{beat} differs: it connects to port 1,"),
        ("select cron.schedule('{old}', '* * * * *', 'select 1')", "{old} is not wanted any more"),
    ],
)
def test_drift_is_found_named_and_repaired(
    cluster: Cluster, dsn: str, database: str, there: Connection, change: str, said: str
) -> None:
    installed(dsn)
    wanted = cron_rows(cluster)
    assert install(dsn, "--check").code == 0
    names = {kind: job_name(kind, database) for kind in ("beat", "purge", "reap", "old")}
    there.execute(change.format(**names).encode())
    found = install(dsn, "--check")
    assert found.code == 1
    assert said.format(**names) in found.out
    assert len(installed(dsn)["changed"]) == 1
    assert cron_rows(cluster) == wanted
    assert install(dsn, "--check").code == 0


def test_check_says_when_the_host_is_silent(dsn: str) -> None:
    installed(dsn)
    with connect(dsn) as here:
        here.execute("update sched.state set last_pass_at = now() - interval '5 minutes'")
    found = install(dsn, "--check", "--json")
    assert found.code == 1
    assert [trouble[:14] for trouble in found.document["troubles"]] == ["no pass for 5m"]


def test_check_says_that_pg_cron_cannot_connect_and_what_to_do(dsn: str, database: str, there: Connection) -> None:
    installed(dsn)
    there.execute(
        "insert into cron.job_run_details (jobid, runid, status, return_message)"
        " select jobid, nextval('cron.runid_seq'), 'failed', 'connection failed' from cron.job where jobname = %s",
        (job_name("beat", database),),
    )
    found = install(dsn, "--check")
    assert found.code == 1
    assert f"{job_name('beat', database)} failed when it last ran: connection failed; pg_cron connects" in found.out
    assert "as postgres and brings no password: allow that in pg_hba.conf" in found.out


def test_check_says_where_the_planned_dates_have_ended(dsn: str, tmp_path: Path) -> None:
    apply(dsn, tmp_path)
    installed(dsn)
    with connect(dsn) as here:
        here.execute("update sched.schedules set planned_until = now() - interval '1 minute' where name = 'nine'")
    found = install(dsn, "--check")
    assert found.code == 1
    assert "nothing is planned any more for nine" in found.out


def test_uninstalling_removes_only_its_own(cluster: Cluster, dsn: str, database: str, there: Connection) -> None:
    other = new_database(cluster, "other")
    installed(other)
    there.execute("select cron.schedule('sched-nightly', '0 0 * * *', 'vacuum')")
    left = cron_rows(cluster)
    installed(dsn)
    done = install(dsn, "--uninstall", "--json")
    assert done.document["removed"] == [job_name(kind, database) for kind in ("beat", "purge", "reap")]
    assert cron_rows(cluster) == left
    with connect(dsn) as here:
        assert here.execute("select host from sched.state").fetchone() == ("tick",)
    again = install(dsn, "--uninstall", "--json")
    assert (again.code, json.loads(again.out)["removed"]) == (0, [])


def test_uninstalling_keeps_the_host_while_another_role_goes_on(cluster: Cluster, dsn: str, database: str) -> None:
    role = plain_role(cluster, database)
    installed(cluster.dsn(database, user=role))
    installed(dsn)
    assert len(cron_rows(cluster)) == 6
    done = install(dsn, "--uninstall")
    assert "3 jobs of other roles stay" in done.err
    assert {row[4] for row in cron_rows(cluster)} == {role}
    with connect(dsn) as here:
        assert here.execute("select host from sched.state").fetchone() == ("pg_cron",)


def test_a_plain_role_with_the_documented_grants_installs_checks_and_removes(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    dsn = cluster.dsn(database, user=plain_role(cluster, database))
    apply(dsn, tmp_path)
    installed(dsn)
    assert install(dsn, "--check").code == 0
    assert install(dsn, "--uninstall").code == 0


def test_a_plain_role_runs_the_printed_script(cluster: Cluster, dsn: str, database: str) -> None:
    role = plain_role(cluster, database)
    psql(cluster, install(dsn, "--print").out, user=role)
    assert [row[4] for row in cron_rows(cluster)] == [role] * 3
    assert install(cluster.dsn(database, user=role), "--print").out == install(dsn, "--print").out


@pytest.mark.parametrize(
    ("revoked", "where", "said"),
    [
        ("usage on schema cron", "postgres", "in database postgres: grant usage on schema cron to {role};"),
        (
            "execute on function cron.schedule_in_database(text, text, text, text, text, boolean)",
            "postgres",
            "in database postgres: grant execute on function "
            "cron.schedule_in_database(text, text, text, text, text, boolean) to {role};",
        ),
        ("usage on schema sched", "", "in database {database}: grant usage on schema sched to {role};"),
        (
            "update on sched.occurrences",
            "",
            "in database {database}: grant select, insert, update, delete on all tables in schema sched to {role};",
        ),
    ],
)
def test_a_missing_grant_is_named(cluster: Cluster, database: str, revoked: str, where: str, said: str) -> None:
    role = plain_role(cluster, database)
    with connect(cluster.dsn(where or database)) as connection:
        connection.execute(f"revoke {revoked} from {role}".encode())
    done = install(cluster.dsn(database, user=role))
    assert done.code == 3
    assert done.err.splitlines()[1:] == ["  " + said.format(role=role, database=database)]
    assert cron_rows(cluster) == []


def test_a_role_that_may_not_connect_to_pg_crons_database_is_told_so(cluster: Cluster, database: str) -> None:
    role = plain_role(cluster, database)
    with connect(cluster.dsn()) as connection:
        connection.execute("revoke connect on database postgres from public")
        try:
            done = install(cluster.dsn(database, user=role))
        finally:
            connection.execute("grant connect on database postgres to public")
    assert done.code == 3
    assert f"role {role} must be allowed to connect there" in done.err


def test_a_server_without_the_extension_created_says_the_two_lines(
    cluster: Cluster, dsn: str, there: Connection
) -> None:
    there.execute("drop extension pg_cron")
    try:
        done = install(dsn)
        printed = install(dsn, "--print")
    finally:
        there.execute("create extension pg_cron")
    assert done.code == 3
    assert "shared_preload_libraries = 'pg_cron'" in done.err
    assert "in database postgres, as superuser: create extension pg_cron;" in done.err
    assert "its library is loaded" in done.err
    assert printed.code == 0


def test_a_server_that_never_heard_of_pg_cron_says_so(server: Cluster, empty_database: str) -> None:
    with connect(empty_database) as connection:
        if connection.execute("select from pg_available_extensions where name = 'pg_cron'").fetchone():
            pytest.skip("the default server of the tests has pg_cron")
    assert sched("migrate", "--dsn", empty_database).code == 0
    done = install(empty_database)
    assert done.code == 3
    assert "this server has no pg_cron" in done.err
    assert 'or run "sched tick"' in done.err
    assert install(empty_database, "--uninstall").code == 0


def test_a_cron_dsn_of_another_server_is_refused(cluster: Cluster, dsn: str, server: Cluster) -> None:
    done = install(dsn, "--cron-dsn", server.dsn())
    assert done.code == 3
    assert "leads to another server" in done.err


def test_two_roles_are_refused_because_jobs_run_as_the_one_that_installs_them(
    cluster: Cluster, dsn: str, database: str
) -> None:
    role = plain_role(cluster, database)
    done = install(dsn, "--cron-dsn", cluster.dsn(user=role))
    assert done.code == 3
    assert f"--cron-dsn connects as {role} and --dsn as postgres" in done.err


def test_settings_that_1_4_gets_wrong_are_warned_of() -> None:
    settings = {
        "cron.use_background_workers": "on",
        "cron.timezone": "America/New_York",
        "cron.launch_active_jobs": "off",
    }
    with pg_cron_cluster(**settings) as cluster:
        dsn = new_database(cluster, "orders")
        warned = install(dsn).err
    assert "issue 200" in warned
    assert "cron.launch_active_jobs is off" in warned
    assert "cron.timezone is set, and pg_cron 1.4 ignores it" in warned


def test_schedules_whose_grace_does_not_exceed_the_beat_are_warned_of(dsn: str, tmp_path: Path) -> None:
    text = DEFINITIONS + '  hasty: {cron: "* * * * *", job: test.noop, catchup: {policy: none, grace: 30s}}\n'
    apply(dsn, tmp_path, text)
    assert "the grace of hasty does not exceed this host's beat of 1m" in install(dsn).err


def test_every_query_can_be_planned_where_pg_cron_is(cluster: Cluster, there: Connection) -> None:
    assert sched("migrate", "--dsn", cluster.dsn()).code == 0
    try:
        for name, text in queries().items():
            if name.startswith("pgcron_") and not text.startswith("call"):
                with there.transaction(force_rollback=True):
                    there.execute(f"explain {text}".encode(), dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", text)))
    finally:
        there.execute("drop schema sched cascade")


def test_the_purge_forgets_old_runs_of_its_own_jobs_only(
    cluster: Cluster, dsn: str, database: str, there: Connection
) -> None:
    installed(dsn)
    foreign = there.execute("select cron.schedule('other', '0 0 1 1 *', 'select 1')").fetchone()
    own = there.execute("select jobid from cron.job where jobname = %s", (job_name("beat", database),)).fetchone()
    assert foreign is not None
    assert own is not None
    for job_id, age in ((own[0], "2 days"), (own[0], None), (own[0], "1 hour"), (foreign[0], "2 days")):
        there.execute(
            "insert into cron.job_run_details (jobid, runid, start_time)"
            " values (%s, nextval('cron.runid_seq'), now() - %s::interval)",
            (job_id, age),
        )
    purge = there.execute("select command from cron.job where jobname = %s", (job_name("purge", database),)).fetchone()
    assert purge is not None
    there.execute(purge[0].encode())
    left = there.execute(
        "select jobid = %s, start_time > now() - interval '1 day' from cron.job_run_details"
        " where jobid = any (%s) order by runid",
        (own[0], [own[0], foreign[0]]),
    ).fetchall()
    there.execute("delete from cron.job_run_details where jobid = %s", (foreign[0],))
    assert left == [(True, True), (False, False)]

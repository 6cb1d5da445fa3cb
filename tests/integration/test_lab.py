"""The lab shows what it is about, on a real server and in its quick form, and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from scheduler.errors import StorageError
from scheduler.lab.killed import measure_killed
from scheduler.lab.plan import claim_statement, scan_below_lock
from scheduler.lab.schema import SCHEMA, lab_schema
from scheduler.lab.settings import LabSettings
from scheduler.lab.statements import rows, run, statements
from scheduler.lab.strategies import STRATEGIES, Held, Naive, Product
from scheduler.storage.database import Connection, Database
from tests.support.cli import REPOSITORY, sched, start_sched
from tests.support.database import connect
from tests.support.pooler import transaction_pooler
from tests.support.require import require
from tests.support.wait import wait_for

LARGEST_PNG_BYTES = 100_000
PATIENCE = 30.0


def schemas(db: Connection) -> set[str]:
    names = db.execute("select nspname from pg_namespace where nspname !~ '^pg_(temp|toast)'").fetchall()
    return {name for (name,) in names}


def experiment(database: str, name: str) -> dict[str, list[dict[str, Any]]]:
    """The tables of one experiment by their titles."""
    ended = sched("bench", "lab", "--quick", "--only", name, "--json", "--dsn", database)
    assert ended.code == 0, ended.err
    (found,) = ended.document["experiments"]
    return {table["title"]: table["rows"] for table in found["tables"]}


def test_only_selecting_before_updating_executes_jobs_twice(database: str) -> None:
    rows = experiment(database, "claim")["Claim strategies"]
    repeated = {(row["strategy"], row["workers"]): row["jobs executed more than once"] for row in rows}
    miscounted = {(row["strategy"], row["workers"]): row["wrong attempt counts"] for row in rows}

    assert repeated.pop((Naive.name, 4)) > 0
    assert miscounted.pop((Naive.name, 4)) > 0
    assert set(repeated.values()) == set(miscounted.values()) == {0}
    assert {name for name, _ in repeated} == {kind.name for kind in STRATEGIES}
    assert {row["executions"] for row in rows if row["strategy"] != Naive.name} == {40}
    assert all(row["executions"] >= 40 for row in rows)
    assert all(row["claim p99, ms"] >= row["claim p50, ms"] > 0 for row in rows)


def test_only_the_held_transaction_is_idle_and_grows_old(database: str) -> None:
    rows = experiment(database, "held")["Sessions of the workers"]
    idle = "with a session idle in transaction, %"

    assert [row[idle] for row in rows if row["strategy"] == Product.name] == [0.0, 0.0]
    held = [row for row in rows if row["strategy"] == Held.name]
    assert all(row[idle] > 50 for row in held)
    assert all(row["largest, s"] > 0 for row in held)
    sched_long = next(row for row in rows[::-1] if row["strategy"] == Product.name)
    for figure in ("oldest transaction p50, s", "largest, transactions", "most"):
        assert held[-1][figure] > sched_long[figure]


def test_a_claim_reads_what_it_takes_only_with_the_partial_index(database: str) -> None:
    alone, partial, same_columns, status_first, without = experiment(database, "plan")["Claim of ten jobs"]

    for row in (alone, partial):
        assert (row["scan"], row["index"], row["rows removed by filter"]) == ("Index Scan", "jobs_claim", 0)
    assert same_columns["rows removed by filter"] >= 20_000
    assert (without["index"], without["claim index, kB"]) == (None, None)
    assert without["buffers"] > 10 * partial["buffers"]
    assert status_first["claim index, kB"] > 10 * partial["claim index, kB"]


def test_the_jobs_of_a_killed_worker_are_taken_over_after_their_lease(database: str) -> None:
    tables = experiment(database, "killed")
    attempts = tables["Attempts on record"]
    lost = [row for row in attempts if row["outcome"] == "lost"]

    assert [(row["worker"], row["attempt"]) for row in lost] == [("first worker", 1)] * 2
    again = [row for row in attempts if row["attempt"] == 2]
    assert [(row["job"], row["worker"], row["outcome"]) for row in again] == [
        (row["job"], "second worker", "succeeded") for row in lost
    ]
    assert sum(row["outcome"] == "succeeded" for row in attempts) == 4
    for row in tables["Jobs of the killed worker"]:
        moments = [row[name] for name in ("last beat", "lease ended", "taken over", "started again", "done")]
        assert moments == sorted(moments)
        assert row["killed at"] < row["lease ended"]


def test_no_attempt_begins_before_its_backoff_is_over(database: str) -> None:
    rows = experiment(database, "backoff")["Time between attempts"]

    assert [row["base * 2^(n-1), capped, s"] for row in rows] == [0.1, 0.2, 0.3]
    assert [(row["jobs"], row["too early"]) for row in rows] == [(8, 0)] * 3
    for row in rows:
        assert row["with jitter from, s"] <= row["drawn least, s"] <= row["drawn most, s"] <= row["to, s"]


def test_the_same_seed_draws_the_same_delays(database: str) -> None:
    rule = {"base": timedelta(seconds=1), "max": timedelta(seconds=4), "jitter": 0.2, "draws": 3, "attempts": 2}
    with lab_schema(Database(database)) as lab, lab.connection() as connection:
        first, again, other = (rows(connection, "backoff_draws", seed=seed, **rule) for seed in (0.42, 0.42, 0.43))
    assert first == again != other
    assert len(first) == 6


@pytest.mark.every_server
def test_the_page_has_tables_charts_and_conditions_and_nothing_stays_behind(database: str, tmp_path: Path) -> None:
    with connect(database) as db:
        before = schemas(db)
        ended = sched("bench", "lab", "--quick", "--only", "plan,backoff", "--out", str(tmp_path), "--dsn", database)
        assert ended.code == 0, ended.err
        assert schemas(db) == before
        version = db.execute("show server_version").fetchone()
    page = (tmp_path / "README.md").read_text()
    assert ended.out.count("\n| 1 |") == page.count("\n| 1 |") == 1
    assert version is not None
    label = rf"PostgreSQL {re.escape(version[0].split()[0])} \(.*fsync \w+.*\); \d+ cores,.*UTC, seed 0\.42, quick run"
    assert len(re.findall(label, page)) == 3, "above, and below each of two tables"
    charts = re.findall(r"\]\((.*)\.svg\)", page)
    assert charts == ["plan-time", "backoff-attempts"]
    for chart in charts:
        assert "quick run" in (tmp_path / f"{chart}.svg").read_text()
        assert 0 < (tmp_path / f"{chart}.png").stat().st_size < LARGEST_PNG_BYTES


def test_without_charts_no_matplotlib_is_needed(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    command = ("bench", "lab", "--quick", "--only", "backoff", "--out", str(tmp_path), "--dsn", database)

    refused = sched(*command)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "error: charts need matplotlib: pip install 'sched-pg[lab]', or give --no-charts for tables only\n"
    )

    assert sched(*command, "--no-charts").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_an_unknown_experiment_is_refused(database: str) -> None:
    ended = sched("bench", "lab", "--only", "claim,speed", "--dsn", database)
    assert ended.code == 2
    assert "--only" in ended.err
    assert "backoff" in ended.err


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_measured(database: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = sched("bench", "lab", "--out", str(tmp_path / "file" / "lab"), "--no-charts", "--dsn", database)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"error: --out: {tmp_path}/file/lab cannot be made: not a directory\n"


def test_a_schema_that_the_lab_did_not_make_is_never_dropped(database: str, db: Connection) -> None:
    db.execute("create schema sched_lab")
    db.execute("create table sched_lab.precious ()")
    try:
        ended = sched("bench", "lab", "--quick", "--only", "backoff", "--dsn", database)
        assert ended.code == 3
        assert "the schema sched_lab exists and was not made by the lab" in ended.err
        assert db.execute("select to_regclass('sched_lab.precious') is not null").fetchone() == (True,)
    finally:
        db.execute("drop schema sched_lab cascade")


def test_what_a_killed_lab_left_is_removed_by_the_next_one(database: str, db: Connection) -> None:
    db.execute("create schema sched_lab")
    run(db, "lab_mark")
    db.execute("create table sched_lab.leftover ()")
    with lab_schema(Database(database)):
        assert db.execute("select to_regclass('sched_lab.leftover') is null").fetchone() == (True,)
    assert SCHEMA not in schemas(db)


def test_a_second_lab_is_refused_and_the_first_goes_on(database: str, db: Connection) -> None:
    with lab_schema(Database(database)):
        with pytest.raises(StorageError, match="another lab is at work"), lab_schema(Database(database)):
            pass
        assert SCHEMA in schemas(db)


def test_a_pooler_is_refused(database: str, db: Connection) -> None:
    require("pgbouncer")
    with (
        tempfile.TemporaryDirectory() as directory,
        transaction_pooler(database, Path(directory)) as address,
        pytest.raises(StorageError, match="leads to a pooler"),
        lab_schema(Database(address)),
    ):
        pass
    assert SCHEMA not in schemas(db)


def test_the_product_beside_it_is_not_touched(database: str, db: Connection) -> None:
    db.execute("insert into sched.jobs (job_type, queue, status) values ('mine', 'backoff', 'pending')")
    before = db.execute("select * from sched.jobs").fetchall()
    experiment(database, "backoff")
    assert db.execute("select * from sched.jobs").fetchall() == before
    assert db.execute("select count(*) from sched.workers").fetchone() == (0,)


@pytest.mark.parametrize(
    ("name", "number", "code"),
    [
        ("claim", signal.SIGINT, 130),
        ("held", signal.SIGTERM, 143),
        ("killed", signal.SIGINT, 130),
        ("backoff", signal.SIGTERM, 143),
    ],
)
def test_an_interrupted_lab_cleans_up(
    database: str, db: Connection, name: str, number: signal.Signals, code: int
) -> None:
    begun = """
        select count(*) > 0 from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and query ~ 'sched_lab[.](jobs|bare_jobs|claim)'
    """
    process = start_sched("bench", "lab", "--only", name, "--dsn", database)
    try:
        wait_for(lambda: db.execute(begun).fetchone() == (True,), PATIENCE, f"the experiment {name} to begin")
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert SCHEMA not in schemas(db)
    alone = "select count(*) = 0 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    wait_for(lambda: db.execute(alone).fetchone() == (True,), PATIENCE, "the sessions of the lab to end")


@pytest.mark.every_server
def test_every_statement_of_the_lab_can_be_planned(database: str) -> None:
    with lab_schema(Database(database)) as lab, lab.connection() as connection:
        for name, text in statements().items():
            if not text.startswith(("select", "insert", "update")):
                continue
            parameters = dict.fromkeys(re.findall(r"%\((\w+)\)s", text))
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(f"explain {text}", parameters)
            except psycopg.errors.Error as error:
                pytest.fail(f"{name}: {error}")


@pytest.mark.every_server
def test_the_statement_of_a_claim_is_taken_from_its_function(database: str) -> None:
    with lab_schema(Database(database)) as lab, lab.connection() as connection:
        run(connection, "plan_fill_pending", jobs=20)
        with connection.transaction(force_rollback=True):
            claimed = connection.execute(claim_statement(connection)).fetchall()
            running = connection.execute("select count(*) from sched_lab.jobs where status = 'running'").fetchone()
            plan = connection.execute(f"explain (format json) {claim_statement(connection)}").fetchone()
    assert len(claimed) == 10
    assert running == (10,)
    assert plan is not None
    assert scan_below_lock(plan[0][0]["Plan"])["Relation Name"] == "jobs"


def test_every_statement_of_the_lab_is_used() -> None:
    code = "\n".join(file.read_text() for file in (REPOSITORY / "scheduler" / "lab").rglob("*.py"))
    assert [name for name in statements() if f'"{name}"' not in code] == []


def test_a_worker_that_cannot_work_ends_the_lab_at_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.lab.killed.sys.executable", "/bin/false")
    ended = sched("bench", "lab", "--quick", "--only", "killed", "--dsn", database)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.endswith("error: a worker process of the lab ended by itself, with code 1\n")


def test_jobs_that_end_before_their_worker_is_killed_end_the_lab_with_a_sentence(database: str) -> None:
    settings = replace(LabSettings.quick(), killed_after_seconds=60.0)
    with (
        lab_schema(Database(database)) as lab,
        pytest.raises(StorageError, match=r"no job left when it was to be killed: its jobs of 2\.5 s had ended"),
    ):
        measure_killed(lab, settings, say=lambda _: None)


def test_a_kill_that_costs_no_job_its_worker_ends_the_lab_with_a_sentence(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.lab.killed._is_ripe", lambda _, running, __: not running)
    with (
        lab_schema(Database(database)) as lab,
        pytest.raises(StorageError, match=r"no job left when it was to be killed"),
    ):
        measure_killed(lab, LabSettings.quick(), say=lambda _: None)


def test_a_worker_of_the_lab_ends_with_its_input(database: str) -> None:
    with lab_schema(Database(database)):
        order = f'{{"dsn": "{database}", "name": "w", "concurrency": 1, "lease_seconds": 5}}\n'
        done = subprocess.run(
            [sys.executable, "-m", "scheduler.lab.killed_worker"],
            input=order,
            text=True,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
            cwd=REPOSITORY,
        )
    assert (done.returncode, done.stderr) == (0, "")

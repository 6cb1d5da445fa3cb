"""Bad input of every kind: one clear sentence, the right exit code, nothing changed, never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from scheduler.storage.embedded import EmbeddedServer
from tests.support.cli import DAILY, Ended, sched, sched_process, write_definitions
from tests.support.database import connect
from tests.support.fake_server import Answer, fake_server, old_postgres, silent, web_server

RANGE = ("--since", "2024-03-01", "--until", "2024-03-11")

USAGE = [
    ("frob", "No such command 'frob'"),
    ("status extra", "unexpected extra argument"),
    ("--frob status", "No such option: --frob"),
    ("status --frob", "No such option: --frob"),
    ("gaps", "Missing option '--since'"),
    ("gaps --since", "Option '--since' requires an argument"),
    ("jobs frob", "No such command 'frob'"),
    ("jobs show", "Missing argument 'ID'"),
    ("jobs show abc", "Invalid value for 'ID': \"abc\" is not a whole number"),
    ("jobs show 0", "ID: 0 is out of range"),
    ("jobs show 99999999999999999999", "ID: 99999999999999999999 is out of range"),
    ("jobs show 7", "there is no job 7"),
    ("jobs retry 7", "there is no job 7"),
    ("jobs replay 7 8", "there is no job 7"),
    ("jobs cancel 0", "ID: 0 is out of range"),
    ("jobs hold x", "Invalid value for 'ID': \"x\" is not a whole number"),
    ("jobs retry", "say which jobs to retry: by number, or by a filter, such as --status dead or --queue NAME"),
    ("jobs hold --limit 5", "say which jobs to hold: by number, or by a filter, such as --status scheduled"),
    ("jobs cancel --dry-run --yes", "say which jobs to cancel: by number, or by a filter"),
    ("jobs retry 1 --dead", "give the numbers of jobs, or a filter such as --queue; not both"),
    ("jobs retry 1 --dry-run", "give the numbers of jobs, or a filter such as --queue; not both"),
    ("jobs retry --status running", '--status: "running" is not known; write one of dead, cancelled, held'),
    ("jobs replay --status held", '--status: "held" is not known; write one of succeeded, dead, cancelled'),
    ("jobs release --dead", "No such option: --dead"),
    ("jobs hold --since 2026-03-01T00:00:00Z", "No such option: --since"),
    ("jobs retry --dead --schedule dayly", 'there is no schedule "dayly"; did you mean "daily"?'),
    ("jobs retry --dead --since 2026-03-01", '--since: "2026-03-01" does not say in which zone'),
    ("jobs retry --dead --until soon", '--until: "soon" is not a moment'),
    (
        "jobs retry --dead --since 2026-03-02T00:00:00Z --until 2026-03-01T00:00:00Z",
        "the range is empty: --until must be later than --since",
    ),
    (
        "jobs retry --status held --since 2026-03-01T00:00:00Z",
        "--since and --until say when jobs ended; held ones have not",
    ),
    ("jobs retry --dead --limit 0", "--limit: 0 is out of range"),
    ("jobs retry --dead --limit many", '"many" is not a whole number'),
    ("jobs list --status done", '--status: "done" is not known; write one of scheduled, waiting, pending'),
    ("jobs list --limit 0", "--limit: 0 is out of range"),
    ("gaps --since yesterday", '--since: "yesterday" is not a moment: write 2026-01-31'),
    ("gaps --since 2024-13-01", '--since: "2024-13-01" is not a moment of the calendar'),
    ("gaps --since 2024-02-30T01:00", '--since: "2024-02-30T01:00" is not a moment of the calendar'),
    ("gaps --since 08:30", '--since: "08:30" has no date'),
    ("gaps --since 1800-01-01", "the year must lie between 1900 and 2200"),
    ("gaps --since 2024-03-11 --until 2024-03-01", "the range is empty"),
    ("gaps --since 2024-03-01 --until 2199-01-01", "lies in the future"),
    ("gaps --since 2024-03-01 --schedule dayly", 'there is no schedule "dayly"'),
    ("gaps --since 2024-03-01 --include enqueued", '--include: "enqueued" is not known'),
    ("backfill --since 2024-03-01 --overlap skip", '--overlap: "skip" is not known; write one of allow'),
    ("backfill --since 2024-03-01 --priority first", '"first" is not a whole number'),
    ("backfill --since 2024-03-01 --priority 40000", "--priority: 40000 is out of range"),
    ("backfill", "backfill needs --since"),
    ("backfill --since 2024-03-01 --order up", '--order: "up" is not known; write one of asc, desc'),
    ("backfill --since 2024-03-01 --max-active 0", "--max-active: 0 is out of range"),
    ("backfill --since 2024-03-01 --payload 1", "--payload must be a JSON object"),
    ("backfill show 7", "there is no backfill 7"),
    ("backfill pause 7", "there is no backfill 7"),
    ("schedules pause dayly", 'there is no schedule "dayly"; did you mean "daily"?'),
    ("schedules resume dayly", 'there is no schedule "dayly"'),
    ("schedules trigger dayly", 'there is no schedule "dayly"'),
    ("schedules trigger daily --date soon", '--date: "soon" is not a moment'),
    ("schedules trigger daily --date 2024-03-05T03:00", "the nearest are 2024-03-05T02:00:00Z, 2024-03-06T02:00:00Z"),
    ("enqueue a.b --payload {", "--payload is not JSON"),
    (
        'enqueue a.b --payload {"n":' + "9" * 5000 + "}",
        "--payload holds a number of more than 4,300 digits; send a text",
    ),
    ("enqueue a.b --payload []", "--payload must be a JSON object"),
    ('enqueue a.b --payload {"a":"\\u0000"}', "contains a NUL character"),
    ("enqueue a.b --at 2026-01-01T08:00", "does not say in which zone"),
    ("enqueue a.b --max-attempts 0", "--max-attempts: 0 is out of range"),
    ("enqueue a.b --timeout 30", "--timeout: 30 has no unit: write 30s"),
    ("enqueue a.b --timeout 0s", "--timeout: 0s is too short"),
    ("enqueue a.b --limit nobody", 'limit "nobody" is not defined'),
    ("tick --json", "--json needs --once"),
    ("tick --once --apply missing", "--apply: missing is no folder"),
    ("worker --lease 15", "--lease: 15 has no unit: write 15s"),
    ("worker --lease 10ms", "--lease: 10ms is too short"),
    ("worker --concurrency 0", "--concurrency: 0 is out of range"),
    ("worker --app no.such.module", 'there is no module "no.such.module"'),
    ("worker --app ../jobs", '--app: "../jobs" is not the name of a module: write it like team.jobs, not as a path'),
    ("worker --app jobs.py", '--app: "jobs.py" is not the name of a module'),
    ("up missing", "no such folder"),
    ("migrate --sql --json", "give one of them"),
    ("lint missing", "missing: no such folder"),
    ("plan missing", "missing: no such folder"),
    ("apply missing", "missing: no such folder"),
    ("preview --dir missing", "missing: no such folder"),
    ("preview --count 0", "--count: 0 is out of range"),
    ("preview --timezone UTC", "--timezone belongs to --cron"),
]

TIMES = [
    ("60 0 * * *", "UTC", "60"),
    ("* * * *", "UTC", "has 4 fields; write five"),
    ("0 0 0 * * *", "UTC", "has 6 fields; seconds first is the form of Quartz and Spring"),
    ("", "UTC", "cron"),
    ("@reboot", "UTC", "@reboot"),
    ("0 22-2 * * *", "UTC", "22-2"),
    ("0 2 * * *", "Europe/Berln", 'is not an IANA zone; did you mean "Europe/Berlin"?'),
    ("0 2 * * *", "../../etc/passwd", "is not an IANA zone"),
    ("0 2 * * *", "UTC+2", "is not an IANA zone"),
    ("0 2 * * *", "", "is not an IANA zone"),
]

FILES = [
    ("  a: {cron: '61 * * * *', job: x}\n", "schedules.yaml:5:13: a.cron:"),
    ("  a: {cron: '0 2 * * *', job: x, timezone: Europe/Berln}\n", 'did you mean "Europe/Berlin"?'),
    ("  a: {cron: '0 2 * * *', job: x, colour: red}\n", "colour"),
    ("  a: {cron: '0 2 * * *'}\n", "job"),
    ("  a: {cron: */5 * * * *, job: x}\n", "quotes"),
    ("  a: {cron: '0 2 * * *', job: x, timeout: 30}\n", "timeout"),
    ("  a: {cron: '0 2 * * *', job: x, payload: {text: \"a\\0b\"}}\n", "NUL"),
    ("\ta: 1\n", "tab"),
]

DSNS = [
    ("postgresql://u:secret@[::1/x", 2, "the database address is not understood (the URL is malformed)"),
    ("host=127.0.0.1 password='secret", 2, "the database address is not understood (unterminated quoted string"),
    ("nonsense", 2, 'missing "=" after "nonsense"'),
    ("hots=127.0.0.1", 2, 'invalid connection option "hots"'),
    ("host=127.0.0.1 port=abc", 2, 'the port "abc" in the database address is not a number from 1 to 65535'),
    ("postgresql://127.0.0.1:70000/x", 2, 'the port "70000"'),
    ("host=127.0.0.1 port=1", 3, "Connection refused"),
    ("host=nowhere.invalid", 3, "nowhere.invalid"),
    ("host=/nowhere", 3, "/nowhere"),
    ("host=127.0.0.1 port=1 connect_timeout=soon", 3, "connect_timeout"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty working directory."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture
def applied(database: str, tmp_path: Path) -> str:
    """A database with the daily schedule applied and one job dead."""
    assert sched("apply", str(write_definitions(tmp_path / "good", DAILY)), "--dsn", database).code == 0
    return database


def contents(dsn: str) -> dict[str, object]:
    """Everything the schema holds, a digest for each table."""
    with connect(dsn) as connection:
        tables = connection.execute(
            "select tablename from pg_tables where schemaname = 'sched' order by tablename"
        ).fetchall()
        return {
            name: connection.execute(
                sql.SQL("select md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from sched.{} t").format(
                    sql.Identifier(name)
                )
            ).fetchone()
            for (name,) in tables
        }


def assert_refused(ended: Ended, code: int, said: str) -> None:
    """One sentence on stderr that says ``said``, nothing on stdout, exit code ``code``."""
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    lines = [line for line in ended.err.splitlines() if not line.startswith("embedded PostgreSQL in")]
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert "secret" not in ended.err


@pytest.fixture
def refused(applied: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Run a command; it has to be refused with exit code 2 and leave the database as it is."""
    before = contents(applied)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SCHED_DSN", applied)

    def check(arguments: list[str], said: str) -> None:
        assert_refused(sched(*arguments), 2, said)

    yield check
    assert contents(applied) == before


@pytest.mark.parametrize(("line", "said"), USAGE, ids=[line for line, _ in USAGE])
def test_a_command_that_makes_no_sense(refused: Callable[..., None], line: str, said: str) -> None:
    refused(line.split(" "), said)


@pytest.mark.parametrize(("cron", "timezone", "said"), TIMES)
def test_an_expression_or_zone_that_does_not_exist(
    refused: Callable[..., None], cron: str, timezone: str, said: str
) -> None:
    refused(["preview", "--cron", cron, "--timezone", timezone], said)


@pytest.mark.parametrize("command", ["lint", "plan", "apply", "up"])
@pytest.mark.parametrize(("text", "said"), FILES)
def test_a_file_that_cannot_be_applied(
    refused: Callable[..., None], tmp_path: Path, command: str, text: str, said: str
) -> None:
    bad = write_definitions(tmp_path / "bad", text)

    refused([command, str(bad)], said)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SCHED_LOG", "loud", 'SCHED_LOG is "loud"; write one of debug, info, warning, error'),
        ("SCHED_ACTOR", "a\nb", "SCHED_ACTOR must be"),
        ("SCHED_DSN", "nonsense", 'missing "=" after "nonsense"'),
    ],
)
def test_a_variable_that_makes_no_sense(
    refused: Callable[..., None], monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)

    refused(["status"], said)


@pytest.mark.parametrize("command", [["status"], ["migrate"], ["tick"], ["worker"], ["gaps", *RANGE]], ids=" ".join)
@pytest.mark.parametrize(("dsn", "code", "said"), DSNS, ids=[dsn for dsn, _, _ in DSNS])
def test_an_address_without_a_database_behind_it(command: list[str], dsn: str, code: int, said: str) -> None:
    assert_refused(sched(*command, "--dsn", dsn), code, said)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("frob", 2, "No such command 'frob'"),
        ("jobs show abc", 2, '"abc" is not a whole number'),
        ("gaps --since yesterday", 2, "--since:"),
        ("plan missing --json", 2, "missing: no such folder"),
        ("preview --cron 0 --json", 2, "has 1 field; write five"),
        ("status --json --dsn nonsense", 2, "the database address is not understood"),
        ("tick --dsn port=1", 3, "the database is not reachable"),
        ("worker --dsn port=1", 3, "the database is not reachable"),
        ("up --dsn port=1 schedules", 3, "the database is not reachable"),
    ],
)
def test_a_real_process_ends_the_same_way(folder: Path, line: str, code: int, said: str) -> None:
    write_definitions(folder / "schedules", DAILY)

    assert_refused(sched_process(*line.split(" "), cwd=folder), code, said)


def test_files_that_cannot_be_applied_do_not_keep_a_ticker_from_firing(applied: str, tmp_path: Path) -> None:
    bad = write_definitions(tmp_path / "bad", FILES[0][0])
    with connect(applied) as connection:
        connection.execute(
            "update sched.occurrences set due_at = now() where logical_date = (select min(logical_date) "
            "from sched.occurrences)"
        )

    ended = sched_process("tick", "--once", "--apply", str(bad), "--dsn", applied, "--json")

    assert (ended.code, ended.document["enqueued"]) == (2, 1)
    assert "a.cron" in ended.err


def test_an_empty_address() -> None:
    assert_refused(sched("status", "--dsn", ""), 2, "--dsn is empty")


def test_a_database_that_does_not_exist(database: str) -> None:
    ended = sched("status", "--dsn", make_conninfo(database, dbname="nowhere"))

    assert_refused(ended, 3, 'database "nowhere" does not exist')


def test_a_role_that_does_not_exist(database: str) -> None:
    ended = sched("migrate", "--dsn", make_conninfo(database, user="nobody_here"))

    assert_refused(ended, 3, 'role "nobody_here" does not exist')


def test_a_wrong_password(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path / ".sched") as server:
        ended = sched("status", "--dsn", make_conninfo(server.dsn, password="secret"))

    assert_refused(ended, 3, "password authentication failed")


def test_a_role_that_may_not_migrate(empty_database: str) -> None:
    with connect(empty_database) as connection:
        connection.execute("drop role if exists visitor")
        connection.execute("create role visitor login")
    ended = sched("migrate", "--dsn", make_conninfo(empty_database, user="visitor"))

    assert_refused(ended, 3, "permission denied for database")


def test_a_role_that_may_not_read(database: str) -> None:
    with connect(database) as connection:
        connection.execute("drop role if exists visitor")
        connection.execute("create role visitor login")
    ended = sched("status", "--dsn", make_conninfo(database, user="visitor"))

    assert_refused(ended, 3, "permission denied for schema sched")


def test_a_database_without_the_schema(empty_database: str) -> None:
    assert_refused(sched("status", "--dsn", empty_database), 3, 'run "sched migrate"')


@pytest.mark.parametrize("command", ["status", "migrate", "tick", "worker"])
def test_a_schema_newer_than_the_code(empty_database: str, command: str) -> None:
    sched("migrate", "--dsn", empty_database)
    with connect(empty_database) as connection:
        connection.execute("insert into sched.migrations (version, name, checksum) values (9999, 'later', '')")

    assert_refused(sched(command, "--dsn", empty_database), 3, "newer than this sched knows")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (old_postgres, "the server is PostgreSQL 13, and sched needs 14 or newer"),
        (web_server, "received invalid response to SSL negotiation: H"),
        (silent, "timeout expired"),
    ],
    ids=["too old", "another protocol", "silent"],
)
def test_a_server_that_is_not_a_usable_postgresql(answer: Answer, said: str) -> None:
    with fake_server(answer) as port:
        ended = sched_process("status", "--dsn", f"host=127.0.0.1 port={port} user=u dbname=d connect_timeout=2")

    assert_refused(ended, 3, said)


def test_an_argument_that_is_not_utf_8(folder: Path) -> None:
    ended = sched_process("jobs", "list", "--schedule", "\udcff", cwd=folder)

    assert_refused(ended, 2, "is not UTF-8")

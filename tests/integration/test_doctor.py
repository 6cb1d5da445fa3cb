"""The doctor: each check is seen to find what it is for, and finds nothing in a database that is well."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from scheduler.clock import FixedClock, SystemClock
from scheduler.core.models import CalendarRule, Cron, Definition, DefinitionSet, ExcludedDays, Limit, Timing
from scheduler.errors import ConfigError
from scheduler.interfaces.cli.prune import SHORTEST
from scheduler.services.apply import apply_definitions
from scheduler.services.doctor import NEWEST_MINORS, Check, examine, repair_clock
from scheduler.services.explain import explain
from scheduler.services.planner import Planner
from scheduler.services.tick import Ticker
from scheduler.storage import doctor
from scheduler.storage.database import Connection, database_now
from scheduler.storage.doctor import server_facts
from tests.support.build import Policy, add_schedule, claim_all, fire, jobs, ledger, plan_date, plan_dates
from tests.support.cli import DAILY, sched, write_definitions
from tests.support.database import connect
from tests.support.leases import add
from tests.support.wait import wait_for

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
OF_THE_TEST_SERVER = {"server", "durability"}  # tests run without fsync, on whatever release there is


def findings(db: Connection, **options: object) -> dict[str, Check]:
    checks = examine(db, wait=lambda seconds: None, **options)  # type: ignore[arg-type]
    return {check.name: check for check in checks if not check.is_ok and check.name not in OF_THE_TEST_SERVER}


def apply(db: Connection, cron: str = "0 0 1 1 *", **timing: object) -> None:
    rule = Timing(name="s", rule=Cron(expression=cron), **timing)  # type: ignore[arg-type]
    definition = Definition(name="s", owner="team", timing=rule, job_type="test.noop", file="s.yaml")
    apply_definitions(db, DefinitionSet(schedules={"s": definition}, limits={}, owners=frozenset({"team"})), actor="t")


def test_nothing_is_found_in_a_database_that_is_well(db: Connection) -> None:
    apply(db, "*/5 * * * *", start=datetime.now(UTC) - HOUR)
    Ticker(Planner(), by="test").run_once(db)

    checks = examine(db)

    assert findings(db) == {}
    assert [check.name for check in checks if check.name not in OF_THE_TEST_SERVER] == [
        "clock",
        "notifications",
        "schema",
        "ticker clock",
        "tz database",
        "passes",
        "planning",
        "horizons",
        "undecided dates",
        "overdue dates",
        "future decisions",
        "calendars",
        "leases",
        "queues",
        "limits",
        "sessions",
        "invariants",
    ]


def test_a_database_without_our_schema_is_told_to_migrate(empty_database: str) -> None:
    with connect(empty_database) as db:
        found = findings(db)

    assert list(found) == ["schema"]
    assert found["schema"].advice == 'run "sched migrate"'


@pytest.mark.parametrize(("behind", "is_ok"), [(1, False), (0, True), (-1, True)])
def test_a_server_behind_the_newest_minor_release_is_found(
    db: Connection, monkeypatch: pytest.MonkeyPatch, behind: int, is_ok: bool
) -> None:
    newest = NEWEST_MINORS[17]
    facts = replace(server_facts(db), version=170_000 + newest - behind)
    monkeypatch.setattr(doctor, "server_facts", lambda connection: facts)

    (check,) = [check for check in examine(db) if check.name == "server"]

    assert check.is_ok is is_ok
    assert (check.advice or "").startswith("" if is_ok else f"install 17.{newest}")


@pytest.mark.parametrize(
    ("changes", "name", "advice"),
    [
        ({"notification_queue_usage": 0.3}, "notifications", "a session listens and does not read"),
        ({"is_vacuuming": False}, "autovacuum", "switch both on"),
    ],
)
def test_what_the_server_says_of_itself_is_found(
    db: Connection, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], name: str, advice: str
) -> None:
    facts = replace(server_facts(db), **changes)  # type: ignore[arg-type]
    monkeypatch.setattr(doctor, "server_facts", lambda connection: replace(facts, now=database_now(connection)))

    found = findings(db)

    assert list(found) == [name]
    assert (found[name].advice or "").startswith(advice)


def test_clocks_that_disagree_are_found(db: Connection) -> None:
    found = findings(db, own_clock=FixedClock(SystemClock().now() - 2 * HOUR))

    assert found["clock"].text.startswith("the database's clock is 2h")
    assert "ahead of the one of this machine" in found["clock"].text


def test_a_process_with_an_older_tz_database_is_found(db: Connection) -> None:
    db.execute("update sched.state set tzdata = '2199z'")

    assert "dates are planned with 2199z" in findings(db)["tz database"].text


def test_without_a_ticker_passes_planning_horizons_and_dates_are_found(db: Connection) -> None:
    schedule = add_schedule(db, planned_until=datetime.now(UTC) - HOUR)
    plan_date(db, schedule, datetime.now(UTC) - HOUR)
    db.execute("update sched.schedules set plan_at = now() - interval '1 hour'")
    db.execute("update sched.schedule_revisions set finish_by = '1 minute'")

    found = findings(db)

    assert list(found) == ["passes", "planning", "horizons", "undecided dates", "overdue dates"]
    assert found["passes"].text == "never"
    assert found["horizons"].subjects == ["s"]
    assert found["undecided dates"].text.startswith("1 schedule with late dates, the oldest due at ")


def test_dates_that_a_pause_keeps_are_no_finding(db: Connection) -> None:
    schedule = add_schedule(db, planned_until=datetime.now(UTC) + HOUR)
    plan_date(db, schedule, datetime.now(UTC) - HOUR)
    db.execute(
        "insert into sched.pauses (schedule_id, from_at, keep, actor) values (1, now() - '2 h'::interval, true, 'a')"
    )
    fire(db, datetime.now(UTC))

    assert findings(db) == {}


def test_expired_leases_and_queues_without_a_worker_are_found(db: Connection) -> None:
    add(db, 2)
    ((job, _),) = claim_all(db, 1)
    db.execute("update sched.jobs set lease_expires_at = now() - '1 min'::interval where id = %s", (job,))
    db.execute("update sched.jobs set available_at = now() - '2 min'::interval where id <> %s", (job,))

    found = findings(db)

    assert (list(found), found["leases"].subjects) == (["leases", "queues"], [f"job {job}"])
    assert found["queues"].subjects == ["default"]


def test_holidays_that_end_soon_are_found(db: Connection) -> None:
    known_until = (datetime.now(UTC) + 30 * DAY).date()
    excluded = (ExcludedDays(name="holidays", dates=frozenset({date(2026, 1, 1)})),)
    apply(db, calendar=CalendarRule(excluded=excluded, known_until=known_until))
    Ticker(Planner(), by="test").run_once(db)

    found = findings(db)

    assert list(found) == ["calendars"]
    assert f"known until {known_until + DAY}T00:00:00Z only: s" in found["calendars"].text


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_a_session_that_is_idle_in_a_transaction_is_named(
    database: str, db: Connection, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setattr("scheduler.services.doctor.IDLE_IN_TRANSACTION", timedelta(0))
    with connect(database, autocommit=False) as other:
        other.execute(f"set transaction isolation level {level}".encode())
        other.execute("set application_name = 'reports'")
        found = findings(db)["sessions"]

        assert found.subjects[0].startswith(f"pid {other.info.backend_pid} (reports) idle in transaction for ")


def test_a_session_with_an_old_snapshot_is_named(
    database: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.services.doctor.OLD_SNAPSHOT", timedelta(0))
    with connect(database) as other:
        pid = other.info.backend_pid
        sleeper = threading.Thread(target=lambda: other.execute("select pg_sleep(2)"))
        sleeper.start()
        is_asleep = "select wait_event = 'PgSleep' from pg_stat_activity where pid = %s"
        wait_for(lambda: db.execute(is_asleep, (pid,)).fetchone() == (True,), 10, "the other session to sleep")
        found = findings(db)["sessions"]
        sleeper.join()

    assert found.subjects[0].startswith(f"pid {pid} (sched) active for ")


def test_an_invariant_counts_as_violated_when_it_is_seen_twice(db: Connection) -> None:
    add(db, 2)
    db.execute("update sched.jobs set attempt_count = 3")

    def mend_one(_: float) -> None:
        db.execute("update sched.jobs set attempt_count = 0 where id = 1")

    (check,) = [check for check in examine(db, wait=mend_one) if check.name == "invariants"]

    assert check.subjects == ["job 2"]
    assert "the attempt count is the number of attempt rows" in check.text


def test_prune_keeps_jobs_for_as_long_as_doctor_relies_on() -> None:
    assert doctor.JOBS_KEPT == SHORTEST


@pytest.mark.parametrize(
    ("harm", "title"),
    [
        ("update sched.occurrences set job_id = 99 where state = 'enqueued'", "an enqueued date has its job"),
        ("delete from sched.jobs", "an enqueued date has its job"),
        ("delete from sched.occurrences", "a job of a date is in the ledger"),
        ("update sched.jobs set schedule_id = 77", "no foreign id without its row"),
        ("delete from sched.limits", "no foreign id without its row"),
        ("update sched.jobs set holds_overlap = true where status = 'waiting'", "admitted jobs of an overlap key"),
        ("update sched.jobs set holds_overlap = false", "a keyed job that is pending or running has its slots"),
        ("update sched.jobs set holds_overlap = false, created_at = now() - '1 h'::interval", "no job waits beside"),
    ],
)
def test_damage_is_found(db: Connection, harm: str, title: str) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    schedule = add_schedule(db, policy=Policy(catchup="all"), planned_until=now + DAY)
    plan_dates(db, schedule, now - timedelta(minutes=2), 3)
    fire(db, now)
    assert doctor.violations(db) == {}

    db.execute(harm.encode())

    assert any(found.startswith(title) for found in doctor.violations(db))


def test_pruned_jobs_and_a_pruned_ledger_violate_nothing(db: Connection) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0) - 2 * DAY
    schedule = add_schedule(db, policy=Policy(catchup="all", overlap="allow"), planned_until=now + DAY)
    plan_dates(db, schedule, now, 4)
    fire(db, now + HOUR)
    db.execute("update sched.jobs set status = 'succeeded', completed_at = now() - '2 h'::interval where id <= 2")
    db.execute("update sched.jobs set status = 'dead', completed_at = now() - '2 h'::interval where id > 2")
    db.execute("select sched.prune_jobs('succeeded', now())")
    db.execute("select sched.prune_ledger(%s, %s)", (schedule, now + timedelta(minutes=3)))

    assert len(ledger(db, schedule)) == 1
    assert doctor.violations(db) == {}


def a_year_ahead(db: Connection) -> tuple[int, datetime]:
    """A daily schedule that was planned and fired by a clock a year ahead, as the database now remembers it."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    schedule = add_schedule(db, planned_until=today + 400 * DAY)
    plan_dates(db, schedule, today, 365, DAY)
    fire(db, today + 364 * DAY + timedelta(minutes=1))
    return schedule, today


def test_dates_decided_by_a_clock_that_was_ahead_are_planned_again(db: Connection) -> None:
    schedule, today = a_year_ahead(db)
    before = findings(db)["future decisions"]

    repaired = repair_clock(db, "ann")

    assert len(before.subjects) == 364
    assert repaired.dates == 364
    states = [state for _, state, _ in ledger(db, schedule)]
    assert (states.count("planned"), states.count("enqueued")) == (364, 1)
    assert "future decisions" not in findings(db)
    fire(db, today + timedelta(minutes=1))
    assert jobs(db, "logical_date")[0] == (today,)
    assert repair_clock(db, "ann").dates == 0


def test_a_repair_is_recorded_and_planning_goes_on_from_now(db: Connection) -> None:
    a_year_ahead(db)

    repair_clock(db, "ann")

    events = db.execute(
        "select kind, actor, reason, details ->> 'was', count(*) from sched.events group by 1, 2, 3, 4"
    ).fetchall()
    positions = db.execute("select planned_until <= now(), plan_at <= now() from sched.schedules").fetchall()
    assert sorted(events) == [
        ("clock_repaired", "ann", "coalesced", "missed", 6),
        ("clock_repaired", "ann", "too_old", "missed", 358),
    ]
    assert positions == [(True, True)]


def test_a_repaired_date_is_explained(db: Connection) -> None:
    apply(db, "0 0 * * *")
    tomorrow = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    db.execute("delete from sched.occurrences")
    plan_date(db, 1, tomorrow)
    db.execute("update sched.occurrences set state = 'missed', reason = 'late', decided_at = now() + '1 y'::interval")

    repair_clock(db, "ann")

    told = [step.text for step in explain(db, "s", tomorrow).steps]
    assert "clock repaired by ann, was missed: late" in told
    assert told[-1].startswith("planned: due in ") or told[-2].startswith("planned: due in ")


def test_leases_and_delays_from_the_future_end(db: Connection) -> None:
    add(db, 3)
    claim_all(db, 2)
    db.execute(
        "update sched.jobs set heartbeat_at = now() + '1 y'::interval, lease_expires_at = now() + '1 y'::interval"
        " where id = 1"
    )
    db.execute(
        "insert into sched.attempts (job_id, number, worker, lease_token, started_at, ended_at, outcome) select id, 1,"
        " gen_random_uuid(), gen_random_uuid(), now(), now() + '1 y'::interval, 'failed' from sched.jobs where id = 3"
    )
    db.execute(
        "update sched.jobs set status = 'scheduled', attempt_count = 1, available_at = now() + '1 y'::interval"
        " where id = 3"
    )

    assert repair_clock(db, "ann").jobs == 2
    rows = db.execute(
        "select lease_expires_at < now() + '2 min'::interval, available_at <= now() from sched.jobs order by id"
    ).fetchall()
    assert rows == [(True, True), (True, True), (None, True)]


def test_nothing_is_repaired_while_the_clocks_disagree(db: Connection) -> None:
    a_year_ahead(db)

    with pytest.raises(ConfigError, match="set the wrong one right before anything is repaired"):
        repair_clock(db, "ann", FixedClock(SystemClock().now() + DAY))


@pytest.fixture
def well(database: str, db: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database in which the command finds nothing, named by SCHED_DSN."""
    monkeypatch.setenv("SCHED_DSN", database)
    monkeypatch.setenv("SCHED_ACTOR", "ann")
    assert sched("tick", "--once", "--apply", str(write_definitions(tmp_path, DAILY))).code == 0
    facts = replace(server_facts(db), version=180_099, is_durable=True)
    monkeypatch.setattr(doctor, "server_facts", lambda connection: replace(facts, now=database_now(connection)))
    return database


@pytest.mark.usefixtures("well")
def test_the_command_ends_with_zero_when_all_is_well() -> None:
    ended = sched("doctor")

    assert (ended.code, ended.err) == (0, "everything is in order\n")
    assert ended.out.splitlines()[0] == "ok    server            PostgreSQL 18.99"
    assert sched("doctor", "--json").document["findings"] == 0


def test_the_command_prints_findings_with_advice(well: str) -> None:
    with connect(well) as connection:
        connection.execute("update sched.state set last_pass_at = now() - '1 day'::interval")

    people, program = sched("doctor"), sched("doctor", "--json")

    (check,) = [check for check in program.document["checks"] if not check["ok"]]
    assert (people.code, program.code, people.err) == (1, 1, "1 finding\n")
    assert check.keys() == {"check", "ok", "text", "advice", "subjects"}
    assert (check["check"], check["advice"]) == (
        "passes",
        'nothing decides what is due: run "sched tick" or "sched up"',
    )
    assert "LOOK  passes            the last one at " in people.out
    assert f"\n{' ' * 24}nothing decides what is due" in people.out


def test_the_command_repairs_and_then_checks(well: str) -> None:
    with connect(well) as connection:
        plan_date(connection, 1, datetime(2199, 1, 1, 2, tzinfo=UTC))
        connection.execute(
            "update sched.occurrences set state = 'skipped', reason = 'overlap', decided_at = '2199-01-01'"
            " where logical_date > '2198-01-01'"
        )

    found = sched("doctor", "--json")
    repaired = sched("doctor", "--repair-clock", "--json")

    assert found.code == 1
    assert (repaired.code, repaired.document["repaired"]) == (0, {"dates": 1, "jobs": 0})


def test_repairing_needs_a_schema(empty_database: str) -> None:
    ended = sched("doctor", "--repair-clock", "--dsn", empty_database)

    assert (ended.code, ended.out) == (3, "")
    assert 'run "sched migrate"' in ended.err


def test_the_clock_of_a_ticker_is_told_until_it_is_right_again(db: Connection) -> None:
    clock = [HOUR]
    ticker = Ticker(Planner(), by="test", own_clock=lambda: datetime.now(UTC) + clock[0])
    ticker.run_once(db)
    (row,) = db.execute("select clock_apart from sched.state").fetchall()
    assert abs(row[0] - HOUR) < timedelta(seconds=10)
    apply(db)
    assert db.execute("select clock_apart from sched.health").fetchall() == [row]
    assert "ahead of the database's" in findings(db)["ticker clock"].text
    clock[0] = timedelta(seconds=50)
    ticker.run_once(db)
    assert db.execute("select clock_apart from sched.state").fetchall() == [(None,)]
    assert "ticker clock" not in findings(db)


def test_a_ticker_whose_clock_is_right_takes_back_what_another_left(db: Connection) -> None:
    wrong = Ticker(Planner(), by="wrong", own_clock=lambda: datetime.now(UTC) - 2 * DAY)
    right = Ticker(Planner(), by="right")
    wrong.run_once(db)
    assert "behind the database's" in findings(db)["ticker clock"].text
    right.run_once(db)
    assert "ticker clock" not in findings(db)
    wrong.run_once(db)  # it goes on, and says so again
    right.run_once(db)
    assert "ticker clock" in findings(db)


def set_slots(db: Connection, slots: int) -> None:
    limits = {"api": Limit(key="api", concurrency=slots, owner="team")}
    kept = Definition(
        name="kept", owner="team", timing=Timing(name="kept", rule=Cron(expression="0 0 1 1 *")), job_type="x"
    )
    apply_definitions(
        db, DefinitionSet(schedules={"kept": kept}, limits=limits, owners=frozenset({"team"})), actor="test"
    )


def test_a_lowered_limit_that_drains_is_known_and_no_violation(db: Connection) -> None:
    set_slots(db, 3)
    for _ in range(4):
        db.execute("select sched.enqueue('x', p_limit_key => 'api')")
    set_slots(db, 1)
    assert "invariants" not in findings(db)
    (limits,) = [check for check in examine(db) if check.name == "limits"]
    assert (limits.is_ok, limits.subjects) == (True, ["api (3 of 1)"])
    # A job that was made since then has no slot to hold.
    db.execute(
        "insert into sched.jobs (job_type, status, limit_key, holds_limit) values ('x', 'pending', 'api', true)",
    )
    assert findings(db)["invariants"].subjects == ["limit api"]


def test_more_jobs_than_a_limit_ever_had_are_a_violation(db: Connection) -> None:
    set_slots(db, 1)
    for _ in range(2):
        db.execute(
            "insert into sched.jobs (job_type, status, limit_key, holds_limit) values ('x', 'pending', 'api', true)"
        )
    assert findings(db)["invariants"].subjects == ["limit api"]

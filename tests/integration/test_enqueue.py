"""Enqueuing from applications: in their transaction, with their driver, one or many."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from scheduler.core.jobs.new_job import NAME_BYTES, Enqueued, NewJob
from scheduler.core.storable import DEPTH_LIMIT
from scheduler.errors import ConfigError
from scheduler.services.enqueue import enqueue, enqueue_many
from tests.support.build import add_schedule
from tests.support.cli import REPOSITORY
from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.invariants import violations
from tests.support.leases import Connection, claim, complete, set_limit, statuses
from tests.support.working import job_row

PAGE = REPOSITORY / "docs" / "how-to" / "enqueue-from-your-application.md"


def test_a_job_exists_if_and_only_if_the_transaction_commits(database: str, one: Connection) -> None:
    with one.transaction(force_rollback=True):
        assert enqueue(one, "x").is_created
    assert statuses(one) == []
    with one.transaction():
        made = enqueue(one, "x", {"a": ["é", None, 1.5]}, queue="q", priority=7, idempotency_key="k", max_attempts=2)
    row = job_row(database, made.id)
    assert (row["payload"], row["queue"], row["priority"], row["idempotency_key"], row["max_attempts"]) == (
        {"a": ["é", None, 1.5]},
        "q",
        7,
        "k",
        2,
    )
    assert row["status"] == "pending"


def test_a_key_that_exists_gives_the_job_that_has_it(one: Connection) -> None:
    first = enqueue(one, "x", idempotency_key="k")
    assert enqueue(one, "y", idempotency_key="k") == Enqueued(first.id, False)
    jobs = [NewJob("x", idempotency_key=key) for key in ("k", "new", None, "new")]
    answers = enqueue_many(one, jobs)
    assert [answer.is_created for answer in answers] == [False, True, True, False]
    assert answers[0].id == first.id and answers[3].id == answers[1].id
    assert len(statuses(one)) == 3


def test_two_that_enqueue_one_key_at_once_make_one_job(database: str, one: Connection) -> None:
    with connect(database) as other:
        with one.transaction():
            made = enqueue(one, "x", idempotency_key="k")
            second = Waiting(
                other,
                """select id, is_created from sched.enqueue_many('[{"job_type": "x", "idempotency_key": "k"}]')""",
            ).until_blocked(one)
        assert second.rows() == [(made.id, False)]


def test_a_job_for_later_is_scheduled(database: str, one: Connection) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    row = job_row(database, enqueue(one, "x", run_at=later, timeout=timedelta(minutes=5)).id)
    assert (row["status"], row["available_at"], row["timeout"]) == ("scheduled", later, timedelta(minutes=5))
    assert job_row(database, enqueue(one, "x", run_at=later - timedelta(days=1)).id)["status"] == "pending"


def test_jobs_of_a_limit_wait_for_its_slots(one: Connection) -> None:
    set_limit(one, "k", 2)
    enqueue_many(one, [NewJob("x", limit="k") for _ in range(5)])
    assert statuses(one) == ["pending", "pending", "waiting", "waiting", "waiting"]
    assert len(claim(one)[0]) == 2
    assert violations(one) == {}


def test_many_jobs_are_made_in_order(one: Connection) -> None:
    made = enqueue_many(one, (NewJob("x", {"n": n}) for n in range(12_000)))
    assert len(made) == 12_000 and all(answer.is_created for answer in made)
    rows = one.execute("select id, (payload ->> 'n')::integer from sched.jobs order by 2").fetchall()
    assert [row[0] for row in rows] == [answer.id for answer in made]


def test_nothing_is_sent_when_one_of_many_is_refused(one: Connection) -> None:
    jobs = [NewJob("x"), NewJob("x", {"a": [float("nan")]})]
    with pytest.raises(ConfigError, match=r"^jobs\[1\]\.payload\.a\[0\]: NaN cannot be stored as JSON"):
        enqueue_many(one, jobs)
    with pytest.raises(ConfigError, match=r"^jobs\[0\]: a dict is not a NewJob$"):
        enqueue_many(one, [{"job_type": "x"}])  # type: ignore[list-item]
    assert statuses(one) == []


def test_no_jobs_are_no_statement(one: Connection) -> None:
    one.close()
    assert enqueue_many(one, []) == []


def test_large_payloads_are_split_into_statements_that_the_server_takes(one: Connection) -> None:
    text = "x" * 250_000
    made = enqueue_many(one, (NewJob("x", {"n": n, "text": text}) for n in range(40)))
    rows = one.execute("select id, (payload ->> 'n')::integer, length(payload ->> 'text') from sched.jobs order by id")
    assert rows.fetchall() == [(answer.id, n, 250_000) for n, answer in enumerate(made)]


@pytest.mark.parametrize(
    "value",
    [10**999, -(10**999), 1.5e300, 5e-324, "é \U0001f600 \n \u2028 \\u0000 %s %(a)s :1 ? $1 '\\", {"": [None, True]}],
    ids=["long", "negative", "float", "smallest", "text", "nested"],
)
def test_a_payload_reads_back_as_it_was_sent(database: str, one: Connection, value: Any) -> None:
    payload = {"v": value}
    assert job_row(database, enqueue(one, "x", payload).id)["payload"] == payload


def test_the_deepest_payload_is_stored_and_read(database: str, one: Connection) -> None:
    payload: dict[str, Any] = {}
    for _ in range(DEPTH_LIMIT - 1):
        payload = {"a": payload}
    assert job_row(database, enqueue(one, "x", payload).id)["payload"] == payload


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("[1]", "payload is not a JSON object"),
        ('{"a": ' + "1" * 1001 + "}", "payload holds a number of more than 1,000 digits"),
        ('{"b": [{"a": -' + "1" * 5000 + "}]}", "payload holds a number of more than 1,000 digits"),
        ('{"a": 1e1000}', "payload holds a number of more than 1,000 digits"),
        ('{"a": [-1e100000]}', "payload holds a number of more than 1,000 digits"),
        ('{"a":' * 101 + "1" + "}" * 101, "payload is nested more than 100 levels deep"),
        ('{"a":' + "[" * 3000 + "]" * 3000 + "}", "payload is nested more than 100 levels deep"),
        ('{"a": "' + "x" * 262_144 + '"}', "payload is more than 262,144 bytes"),
    ],
    ids=["list", "number", "inner number", "exponent", "large exponent", "level", "levels", "size"],
)
def test_what_a_worker_could_not_read_is_refused_from_every_language(database: str, payload: str, message: str) -> None:
    with connect(database) as one:
        for call in (
            "sched.enqueue('x', %s::text::jsonb)",
            "sched.enqueue_many(jsonb_build_array(jsonb_build_object("
            "'job_type', 'y'), jsonb_build_object('job_type', 'x', 'payload', %s::text::jsonb)))",
        ):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
                one.execute(f"select id from {call}".encode(), (payload,))
        assert statuses(one) == []


@pytest.mark.parametrize(
    ("argument", "constraint"),
    [
        ("p_timeout => '3000000 years'", "jobs_timeout"),
        ("p_timeout => '0'", "jobs_timeout"),
        ("p_run_at => 'infinity'", "jobs_instants"),
        ("p_run_at => '-infinity'", "jobs_instants"),
        ("p_run_at => '20000-01-01'", "jobs_instants"),
    ],
)
def test_times_that_a_worker_could_not_read_are_refused(one: Connection, argument: str, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        one.execute(f"select id from sched.enqueue('x', {argument})".encode())


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":' * 100 + "1" + "}" * 100,
        '{"a": [' + "9" * 1000 + ", -" + "9" * 1000 + "]}",
        '{"a": "' + "x" * 260_000 + '"}',
    ],
    ids=["levels", "numbers", "size"],
)
def test_what_is_just_small_enough_is_taken_by_sql_and_python_alike(one: Connection, payload: str) -> None:
    one.execute("select id from sched.enqueue('x', %s::text::jsonb)", (payload,))
    enqueue(one, "x", json.loads(payload))
    rows = one.execute("select count(*), count(distinct payload) from sched.jobs").fetchall()
    assert rows == [(2, 1)]


def test_the_longest_key_fits_the_index(one: Connection) -> None:
    key = "".join(chr(0x4E00 + n * 7 % 20_000) for n in range(NAME_BYTES // 3))  # does not compress
    assert enqueue(one, "x", idempotency_key=key, queue=key[::-1]).is_created
    assert not enqueue(one, "x", idempotency_key=key).is_created


def test_the_key_of_a_job_that_ended_or_is_another_ones_is_still_taken(one: Connection) -> None:
    first = enqueue(one, "x", {"a": 1}, idempotency_key="k")
    complete(one, *claim(one))
    assert enqueue(one, "other", {"b": 2}, idempotency_key="k") == Enqueued(first.id, False)
    assert one.execute("select job_type, payload, status from sched.jobs").fetchall() == [("x", {"a": 1}, "succeeded")]


def test_a_key_that_a_rolled_back_transaction_had_is_free(database: str, one: Connection) -> None:
    with connect(database) as other:
        with one.transaction(force_rollback=True):
            enqueue(one, "x", idempotency_key="k")
            second = Waiting(other, "select is_created from sched.enqueue('x', p_idempotency_key => 'k')")
            second.until_blocked(one)
        assert second.rows() == [(True,)]


def test_in_repeatable_read_a_key_that_is_not_seen_is_an_error_to_retry(database: str, one: Connection) -> None:
    with connect(database) as other:
        one.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with one.transaction():
            one.execute("select 1")
            enqueue(other, "x", idempotency_key="k")
            with pytest.raises(psycopg.errors.SerializationFailure), one.transaction():
                enqueue(one, "x", idempotency_key="k")


def test_the_rights_that_the_page_grants_are_enough(one: Connection) -> None:
    grants = re.findall(r"^grant .* to shop;$", PAGE.read_text(), re.MULTILINE)
    set_limit(one, "k", 1)
    with one.transaction(force_rollback=True):
        one.execute("create role shop")
        for grant in grants:
            one.execute(grant.encode())
        one.execute("set local role shop")
        enqueue(one, "x")
        assert enqueue(one, "x", limit="k", idempotency_key="k").is_created
        assert not enqueue(one, "x", limit="k", idempotency_key="k").is_created
        one.execute("reset role")
        assert statuses(one) == ["pending", "pending"]
    assert len(grants) == 5


def test_an_error_of_the_database_is_the_drivers_own(one: Connection) -> None:
    with one.transaction(force_rollback=True):
        with pytest.raises(psycopg.errors.DivisionByZero):
            one.execute("select 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            enqueue(one, "x")


def test_the_overlap_slot_of_a_schedule_is_nobody_elses_limit(one: Connection) -> None:
    slot = f"${add_schedule(one)}"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not defined"):
        one.execute("select sched.enqueue('x', p_limit_key => %s)", (slot,))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not defined"):
        one.execute("select sched.enqueue_many(%s)", (Jsonb([{"job_type": "x", "limit_key": slot}]),))


def test_a_limit_that_is_not_defined_is_refused(one: Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='limit "k" is not defined'):
        enqueue(one, "x", limit="k")

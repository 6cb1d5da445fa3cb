"""Enqueuing from applications: in their transaction, with their driver, one or many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from scheduler.errors import ConfigError
from scheduler.services.enqueue import enqueue, enqueue_many, enqueue_many_async
from scheduler.storage.operating import Enqueued, NewJob
from tests.support.database import connect
from tests.support.interleaving import Waiting
from tests.support.invariants import violations
from tests.support.leases import Connection, claim, set_limit, statuses
from tests.support.working import job_row


@pytest.fixture
def one(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


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
    jobs = [NewJob(job_type="x", payload={}, idempotency_key=key) for key in ("k", "new", None, "new")]
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
    enqueue_many(one, [NewJob(job_type="x", payload={}, limit_key="k") for _ in range(5)])
    assert statuses(one) == ["pending", "pending", "waiting", "waiting", "waiting"]
    assert len(claim(one)[0]) == 2
    assert violations(one) == {}


def test_many_jobs_are_made_in_order(one: Connection) -> None:
    made = enqueue_many(one, (NewJob(job_type="x", payload={"n": n}) for n in range(12_000)))
    assert len(made) == 12_000 and all(answer.is_created for answer in made)
    rows = one.execute("select id, (payload ->> 'n')::integer from sched.jobs order by 2").fetchall()
    assert [row[0] for row in rows] == [answer.id for answer in made]


def test_an_async_connection_is_served_too(database: str, one: Connection) -> None:
    async def run() -> list[Enqueued]:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            return await enqueue_many_async(connection, [NewJob(job_type="x", payload={})])

    (made,) = asyncio.run(run())
    assert job_row(database, made.id)["job_type"] == "x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"payload": {"a": [{"b": "x\0"}]}}, "payload.a[0].b contains a NUL"),
        ({"payload": {"a": float("nan")}}, "payload.a is not a finite number"),
        ({"payload": {"a": object()}}, "payload.a is a object"),
        ({"payload": {"a": "x" * 300_000}}, "payload is 300,"),
        ({"idempotency_key": "\0"}, "idempotency_key contains a NUL"),
        ({"run_at": datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)}, "has no time zone"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"queue": ""}, "not empty"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(one: Connection, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as caught:
        enqueue(one, "x", **arguments)
    assert message in str(caught.value)
    assert statuses(one) == []


def test_a_limit_that_is_not_defined_is_refused(one: Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='limit "k" is not defined'):
        enqueue(one, "x", limit="k")

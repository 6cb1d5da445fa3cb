"""What a job may hold, and what is said about everything else: the field, its place in the payload, what to send."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from scheduler.core.jobs.new_job import NewJob, job_document
from scheduler.core.storable import DEPTH_LIMIT, place
from scheduler.errors import ConfigError


class Size(StrEnum):
    SMALL = "small"


class Level(IntEnum):
    HIGH = 3


Point = namedtuple("Point", "x y")
NOW = datetime(2026, 3, 2, 12, tzinfo=timezone(timedelta(hours=2)))


def nested(levels: int) -> dict[str, Any]:
    """Objects in objects, ``levels`` of them."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def looped() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = [value]
    return value


def shared(innermost: Any, levels: int, times: int) -> dict[str, Any]:
    """``levels`` lists, each ``times`` times in the next one: small in memory, endless as JSON."""
    value = innermost
    for _ in range(levels):
        value = [value] * times
    return {"a": value}


def looped_twice() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = [value, value]
    return value


def test_a_job_becomes_the_object_that_the_function_takes() -> None:
    job = NewJob(
        "mail.send", {"to": "x"}, run_at=NOW, limit="mail", idempotency_key="k", timeout=timedelta(minutes=1, days=2)
    )
    assert job_document(job) == {
        "job_type": "mail.send",
        "payload": {"to": "x"},
        "queue": "default",
        "priority": 100,
        "run_at": "2026-03-02T10:00:00+00:00",
        "idempotency_key": "k",
        "limit_key": "mail",
        "max_attempts": 5,
        "timeout": "172860000000 microseconds",
    }


def test_what_is_not_said_is_left_to_the_database() -> None:
    assert job_document(NewJob("a")).keys() == {"job_type", "payload", "queue", "priority", "max_attempts"}


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, True),
        ("é \U0001f600 \n \u2028", "é \U0001f600 \n \u2028"),
        ((1, [2]), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Size.SMALL, "small"),
        (Level.HIGH, 3),
        (10**999, 10**999),
        (-(10**999), -(10**999)),
        (1.5e300, int(1.5e300)),
        (5e-324, 5e-324),
        ({"": ""}, {"": ""}),
    ],
)
def test_json_is_kept(value: Any, stored: Any) -> None:
    document = job_document(NewJob("a", MappingProxyType({"v": value})))
    assert json.loads(json.dumps(document))["payload"] == {"v": stored}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (
            {"orders": [1, 2, 3, {"total": float("nan")}]},
            "payload.orders[3].total: NaN cannot be stored as JSON; send null or a text",
        ),
        ({"a": float("inf")}, "payload.a: Infinity cannot be stored as JSON; send null or a text"),
        ({"a": float("-inf")}, "payload.a: -Infinity cannot be stored as JSON; send null or a text"),
        ({"a": [{"b": "x\0"}]}, "payload.a[0].b: contains a NUL character"),
        ({"a": "\ud800"}, "payload.a: contains half of a surrogate pair"),
        ({"a\0": 1}, 'payload["a\\u0000"]: key contains a NUL character'),
        ({"\udfff": 1}, 'payload["\\udfff"]: key contains half of a surrogate pair'),
        ({"odd key": {"x": b""}}, 'payload["odd key"].x: a value of type bytes cannot be stored as JSON; send it as'),
        ({"a": {1: 2}}, "payload.a: the key 1 is not text: send str() of it"),
        ({None: 2}, "payload: the key None is not text: send str() of it"),
        ({"at": NOW}, "payload.at: a value of type datetime cannot be stored as JSON; send its isoformat() as text"),
        ({"on": date(2026, 3, 2)}, "payload.on: a value of type date cannot be stored as JSON; send its isoformat()"),
        (
            {"a": timedelta(1)},
            "payload.a: a value of type timedelta cannot be stored as JSON; send its total_seconds()",
        ),
        ({"a": Decimal("1.10")}, "payload.a: a value of type Decimal cannot be stored as JSON; send str() of it"),
        ({"a": {1, 2}}, "payload.a: a value of type set cannot be stored as JSON; send a list"),
        ({"a": {}.keys()}, "payload.a: a value of type dict_keys cannot be stored as JSON; send a list"),
        ({"a": iter([])}, "payload.a: a value of type list_iterator cannot be stored as JSON; send a list"),
        ({"a": MappingProxyType({})}, "payload.a: a value of type mappingproxy cannot be stored as JSON; send a dict"),
        ({"a": UUID(int=0)}, "payload.a: a value of type UUID cannot be stored as JSON; send a dict of what matters"),
        ({"a": 10**1000}, "payload.a: a number of more than 1,000 digits cannot be stored as JSON; send a text"),
        ({"a": -(10**1000)}, "payload.a: a number of more than 1,000 digits cannot be stored as JSON; send a text"),
        ({"a": "x" * 300_000}, "payload: is 300,009 bytes as JSON, more than 262,144"),
        ({"a": "é" * 140_000}, "payload: is 280,009 bytes as JSON"),
        (nested(DEPTH_LIMIT + 2), "... is nested more than 100 levels deep"),
        (looped(), "is nested more than 100 levels deep: make it flatter"),
        ([1], "payload: a list is not a dict; put it under a key of one"),
        ("text", "payload: a str is not a dict"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_what_cannot_be_stored_is_named_with_its_place(payload: Any, message: str) -> None:
    assert message.removeprefix("... ") in refusal(payload=payload)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (shared([], 40, 2), "payload: is more than 262,144 bytes as JSON: store the data and pass a reference"),
        (shared("x" * 200_000, 1, 200_000), "payload: is more than 262,144 bytes as JSON"),
        (shared({"k" * 1000: 1}, 2, 5_000), "payload: is more than 262,144 bytes as JSON"),
        (shared(float("nan"), 40, 2), "NaN cannot be stored as JSON"),
        (looped_twice(), "is nested more than 100 levels deep: make it flatter"),
    ],
)
def test_what_is_endless_as_json_is_refused_at_once(payload: Any, message: str) -> None:
    assert message in refusal(payload=payload)


def test_what_stands_in_two_places_is_stored_in_both() -> None:
    assert job_document(NewJob("a", shared(1, 2, 2)))["payload"] == {"a": [[1, 1], [1, 1]]}


def test_the_depth_that_is_allowed_is_stored() -> None:
    assert job_document(NewJob("a", nested(DEPTH_LIMIT)))["payload"] == nested(DEPTH_LIMIT)


def test_what_the_messages_advise_is_accepted() -> None:
    payload = {
        "at": NOW.isoformat(),
        "price": str(Decimal("1.10")),
        "data": base64.b64encode(b"\0").decode(),
        "tags": list({"x"}),
        "took": timedelta(1).total_seconds(),
        "nothing": None,
    }
    assert job_document(NewJob("a", payload))["payload"] == payload


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("job_type", "", "job_type: is empty"),
        ("job_type", None, "job_type: a NoneType is not a text"),
        ("queue", " ", "queue: is empty"),
        ("queue", "\ud800", "queue: contains half of a surrogate pair"),
        ("idempotency_key", "\0", "idempotency_key: contains a NUL"),
        ("idempotency_key", "", "idempotency_key: is empty"),
        ("idempotency_key", 7, "idempotency_key: a int is not a text"),
        (
            "idempotency_key",
            "é" * 501,
            "idempotency_key: is 1,002 bytes long, more than 1,000: shorten it, or pass a hash",
        ),
        ("limit", "", "limit: is empty"),
        ("priority", 32768, "priority: 32768 is not a whole number from"),
        ("priority", True, "priority: True is not a whole number from"),
        ("priority", 1.0, "priority: 1.0 is not a whole number from"),
        ("max_attempts", 0, "max_attempts: 0 is not a whole number from 1 to 1,000"),
        ("max_attempts", "5", "max_attempts: '5' is not a whole number from 1 to 1,000"),
        ("run_at", NOW.replace(tzinfo=None), "run_at: 2026-03-02 12:00:00 has no time zone; pass an aware datetime"),
        ("run_at", date(2026, 3, 2), "run_at: a date is not a datetime"),
        ("run_at", "2026-03-02T12:00:00Z", "run_at: a str is not a datetime"),
        ("run_at", datetime.max.replace(tzinfo=timezone(timedelta(hours=-2))), "is beyond the calendar in UTC"),
        ("timeout", 30, "timeout: a int is not a timedelta"),
        ("timeout", timedelta(0), "timeout: 0:00:00 is not between 0.001s and 100 years"),
        ("timeout", timedelta.max, "timeout: 999999999 days, 23:59:59.999999 is not between"),
    ],
)
def test_every_other_field_is_refused_by_its_name(field: str, value: Any, message: str) -> None:
    assert message in refusal(**{field: value})


def test_a_number_with_more_digits_than_python_writes_is_refused_like_any_other() -> None:
    assert "priority: (a value too long to show) is not a whole number from" in refusal(priority=10**5000)
    assert "max_attempts: (a value too long to show) is not a whole" in refusal(max_attempts=[10**5000])
    assert "payload: the key (a value too long to show) is not text" in refusal(payload={10**5000: 1})
    assert "payload.a: a number of more than 1,000 digits" in refusal(payload={"a": 10**5000})


def test_the_last_instant_of_the_calendar_is_accepted() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    assert job_document(NewJob("a", run_at=last))["run_at"] == last.isoformat()


def test_one_of_many_is_named_by_its_position() -> None:
    with pytest.raises(ConfigError, match=r"^jobs\[3\]\.payload\.a: NaN"):
        job_document(NewJob("a", {"a": float("nan")}), "jobs[3].")


def test_a_place_is_cut_when_it_is_very_long() -> None:
    assert place("payload", ("a" * 1000, 1)) == "payload." + "a" * 189 + "..."
    assert place("payload", ()) == "payload"


def refusal(**fields: Any) -> str:
    """The one sentence with which a job is refused."""
    with pytest.raises(ConfigError) as caught:
        job_document(NewJob(**({"job_type": "a"} | fields)))
    (line,) = str(caught.value).splitlines()
    return line

"""A job as an application asks for it, checked and brought into the form that ``sched.enqueue_many`` takes.

What is refused is refused here, before a statement is sent, because an error inside the application's transaction would
cost it everything it did before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler.core.models import PRIORITIES
from scheduler.core.storable import place, storable, storage_faults, text_fault
from scheduler.core.time.durations import LONGEST
from scheduler.errors import ConfigError, shown_value

NAME_BYTES = 1000
"""PostgreSQL's indexes hold texts of up to about 2,700 bytes."""
MOST_ATTEMPTS = 1000
SHORTEST_TIMEOUT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that belongs to no schedule: ``NewJob("mail.send", {"to": "a@example.org"}, queue="mail")``.

    ``payload`` is the handler's input, JSON. Of smaller ``priority`` goes first. ``run_at`` is an aware datetime before
    which it does not start; None means now. Of two jobs with one ``idempotency_key`` only the first is made. ``limit``
    names a limit of the definition files to obey. ``timeout`` ends an attempt, None means never.
    """

    job_type: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    queue: str = "default"
    priority: int = 100
    run_at: datetime | None = None
    idempotency_key: str | None = None
    limit: str | None = None
    max_attempts: int = 5
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The job's id, and whether it is new: an idempotency key that exists gives the job that has it, unchanged."""

    id: int
    is_created: bool


def job_document(job: NewJob, prefix: str = "") -> dict[str, Any]:
    """The object that stands for ``job`` in the argument of ``sched.enqueue_many``; unset values are left out.

    Raises ConfigError that names the field, after ``prefix``, and says what to pass instead.
    """
    values = {
        "job_type": _name(f"{prefix}job_type", job.job_type),
        "payload": _payload(f"{prefix}payload", job.payload),
        "queue": _name(f"{prefix}queue", job.queue),
        "priority": _whole(f"{prefix}priority", job.priority, *PRIORITIES),
        "run_at": _instant(f"{prefix}run_at", job.run_at),
        "idempotency_key": _optional_name(f"{prefix}idempotency_key", job.idempotency_key),
        "limit_key": _optional_name(f"{prefix}limit", job.limit),
        "max_attempts": _whole(f"{prefix}max_attempts", job.max_attempts, 1, MOST_ATTEMPTS),
        "timeout": _timeout(f"{prefix}timeout", job.timeout),
    }
    return {name: value for name, value in values.items() if value is not None}


def name_fault(text: str) -> str | None:
    """Why ``text`` cannot be a job type, a queue, a key or a limit; or None."""
    if not text.strip():
        return "is empty"
    if fault := text_fault(text):
        return fault
    if (size := len(text.encode())) > NAME_BYTES:
        return f"is {size:,} bytes long, more than {NAME_BYTES:,}: shorten it, or pass a hash of it"
    return None


def _name(field_name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{field_name}: a {type(value).__name__} is not a text")
    if fault := name_fault(value):
        raise ConfigError(f"{field_name}: {fault}")
    return value


def _optional_name(field_name: str, value: Any) -> str | None:
    return None if value is None else _name(field_name, value)


def _payload(field_name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{field_name}: a {type(value).__name__} is not a dict; put it under a key of one")
    payload = dict(value)
    for path, fault in storage_faults(payload):
        raise ConfigError(f"{place(field_name, path)}: {fault}")
    return storable(payload)


def _whole(field_name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{field_name}: {shown_value(value)} is not a whole number from {low:,} to {high:,}")
    return value


def _instant(field_name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ConfigError(f"{field_name}: a {type(value).__name__} is not a datetime")
    if value.utcoffset() is None:
        raise ConfigError(f"{field_name}: {value} has no time zone; pass an aware datetime, like datetime.now(UTC)")
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError as error:
        raise ConfigError(f"{field_name}: {value} is beyond the calendar in UTC") from error


def _timeout(field_name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, timedelta):
        raise ConfigError(f"{field_name}: a {type(value).__name__} is not a timedelta")
    if not SHORTEST_TIMEOUT <= value <= LONGEST:
        raise ConfigError(f"{field_name}: {value} is not between {SHORTEST_TIMEOUT.total_seconds():g}s and 100 years")
    return f"{value // timedelta(microseconds=1)} microseconds"

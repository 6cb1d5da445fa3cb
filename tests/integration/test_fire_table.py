"""All policies against each other: every combination of catch-up, overlap, lateness, live jobs and pauses, rows in and
rows out, read in one pass, in two, and about one date of a schedule at a time.

What must come out is computed by ``expected``, a model that was written from the words of DESIGN section 4 and shares
nothing with the SQL. ``BY_HAND`` holds the model to rows that a person can check. A case is a schedule of its own, all
of them in one database, so that a pass decides thousands of cases at once.

The SQL may be written anew in any way that keeps this table.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, LiteralString

import pytest
from psycopg import sql

from scheduler.storage.database import Connection
from tests.support.build import MINUTE, NOON, fire
from tests.support.database import connect
from tests.support.invariants import violations

GRACE = 2
MAX_AGE = 7 * 1440
OLD = 8 * 1440
FILLED_AT_ONCE = 250
UNFINISHED = ("scheduled", "waiting", "pending", "running")


@dataclass(frozen=True)
class Date:
    """An expected date: minutes before now that it stands for, and that it was due; negative is in the future."""

    logical: int
    due: int


@dataclass(frozen=True)
class Live:
    """A job that its schedule has already: its status, who made it, whether it has the overlap slot."""

    status: str
    origin: str
    has_slot: bool


@dataclass(frozen=True)
class Pause:
    """Minutes before now from which on and up to which the schedule is paused; still open without an end."""

    since: int
    until: int | None
    keep: bool


@dataclass(frozen=True)
class Case:
    """A schedule with its policies and dates, oldest first, and what stands in its way."""

    catchup: str
    overlap: str
    dates: tuple[Date, ...]
    live: tuple[Live, ...] = ()
    pause: Pause | None = None
    is_planned: bool = True


@dataclass(frozen=True)
class Outcome:
    """What becomes of a case: of each date its outcome and what its job covers, of all jobs made their statuses, of the
    jobs that were there their statuses."""

    dates: tuple[str, ...]
    covers: tuple[int | None, ...]
    statuses: tuple[str, ...]
    live: tuple[str, ...]


# --- the model: DESIGN section 4, in its order ------------------------------------------------------------------------


def expected(case: Case) -> Outcome:
    """The outcome of a case that is decided now, in however many passes."""
    outcomes: dict[Date, str] = {}
    made: list[Date] = []
    unfinished = [job for job in case.live if job.status in UNFINISHED and job.origin != "backfill"]
    for date in sorted(case.dates, key=lambda date: (-date.due, -date.logical)):  # oldest first
        outcome = by_time(case, date)
        if outcome == "enqueued" and not may_overlap(case.overlap, len(unfinished) + len(made)):
            outcome = "skipped overlap"
        if outcome == "enqueued":
            made.append(date)
        outcomes[date] = outcome
    by_date = tuple(outcomes[date] for date in case.dates)
    live = tuple(becomes_of(job, case, is_superseded=bool(made)) for job in case.live)
    return Outcome(by_date, covers(case, by_date), statuses(case, len(made)), live)


def by_time(case: Case, date: Date) -> str:
    """What lateness, catch-up and pauses make of a date, whatever else runs."""
    is_late = date.due > GRACE
    if date.due < 0 or keeps(case.pause, date):
        return "planned"
    if is_late and date.due <= MAX_AGE and case.catchup == "latest" and not case.is_planned:
        return "planned"
    if skips(case.pause, date):
        return "skipped paused"
    if date.due > MAX_AGE:
        return "missed too_old"
    if not is_late or case.catchup == "all":
        return "enqueued"
    if case.catchup == "none":
        return "missed late"
    return "missed coalesced" if any(stands_for(later, date, case) for later in case.dates) else "enqueued"


def stands_for(later: Date, date: Date, case: Case) -> bool:
    """Whether a date is a later one, due, and can still run."""
    is_possible = 0 <= later.due <= MAX_AGE and not skips(case.pause, later)
    return later.logical < date.logical and is_possible


def skips(pause: Pause | None, date: Date) -> bool:
    return pause is not None and not pause.keep and is_inside(pause, date)


def keeps(pause: Pause | None, date: Date) -> bool:
    """Undecided until somebody resumes; then catch-up decides."""
    return pause is not None and pause.keep and pause.until is None and is_inside(pause, date)


def is_inside(pause: Pause, date: Date) -> bool:
    return date.due <= pause.since and (pause.until is None or date.due > pause.until)


def may_overlap(overlap: str, unfinished: int) -> bool:
    """Whether one more may be enqueued beside so many earlier live ones."""
    return {"skip": unfinished == 0, "queue_one": unfinished <= 1}.get(overlap, True)


def covers(case: Case, outcomes: Sequence[str]) -> tuple[int | None, ...]:
    """The start of the first interval that a date's job stands for, if it stands for several.

    Dates that wait until the schedule is planned up to now count: they will be coalesced.
    """
    result: list[int | None] = []
    first: int | None = None
    for (date, start), outcome in zip(with_intervals(case), outcomes, strict=True):
        result.append(first if outcome == "enqueued" else None)
        if by_time(replace(case, is_planned=True), date) != "missed coalesced":
            first = None
        elif first is None:
            first = start
    return tuple(result)


def with_intervals(case: Case) -> list[tuple[Date, int]]:
    """Each date with the start of its interval: the date before, a minute before the first."""
    starts = [case.dates[0].logical + 1, *(date.logical for date in case.dates)]
    return list(zip(case.dates, starts, strict=False))


def becomes_of(job: Live, case: Case, is_superseded: bool) -> str:
    """The status of a job that was there; `asked` for a running one that has been asked to stop."""
    if case.overlap != "cancel_running" or not is_superseded or job.origin == "backfill" or job.status == "held":
        return job.status
    return "asked" if job.status == "running" else "cancelled"


def statuses(case: Case, made: int) -> tuple[str, ...]:
    """The statuses of the jobs made, sorted: one may start when nobody keeps the overlap slot, the others wait."""
    if case.overlap == "allow" or not made:
        return ("pending",) * made
    is_taken = any(job.has_slot and becomes_of(job, case, True) != "cancelled" for job in case.live)
    others = "cancelled" if case.overlap == "cancel_running" else "waiting"
    return in_line(made, is_taken=is_taken, others=others)


def in_line(count: int, *, is_taken: bool, others: str = "waiting") -> tuple[str, ...]:
    """The statuses of so many new jobs that want one slot, sorted."""
    return tuple(sorted(["waiting" if is_taken else "pending", *[others] * (count - 1)])) if count else ()


def expected_of_fill(case: Case, is_overlap_allowed: bool) -> Outcome:
    """The outcome of a backfill of all that is due: no policy but the overlap slot, and jobs that are there go on."""
    dates = tuple("planned" if date.due < 0 else "enqueued backfill" for date in case.dates)
    made = dates.count("enqueued backfill")
    if case.overlap == "allow" or is_overlap_allowed:
        new: tuple[str, ...] = ("pending",) * made
    else:
        new = in_line(made, is_taken=any(job.has_slot for job in case.live))
    return Outcome(dates, (None,) * len(dates), new, tuple(job.status for job in case.live))


def filled_afterwards(case: Case) -> Outcome:
    """The outcome of a pass, then a backfill of what the pass missed or skipped."""
    fired = expected(case)
    dates = tuple("enqueued backfill" if " " in outcome else outcome for outcome in fired.dates)
    made = dates.count("enqueued backfill")
    if case.overlap == "allow":
        new: tuple[str, ...] = ("pending",) * made
    else:
        new = in_line(made, is_taken=bool(fired.statuses) or any(job.has_slot for job in case.live))
    return replace(fired, dates=dates, statuses=tuple(sorted(fired.statuses + new)))


# --- the cases --------------------------------------------------------------------------------------------------------


def on_time(*minutes: int) -> tuple[Date, ...]:
    """Dates that were due when they say."""
    return tuple(Date(each, each) for each in minutes)


CATCHUP = ("latest", "all", "none")
OVERLAP = ("queue", "allow", "skip", "queue_one", "cancel_running")
DATES = (
    on_time(1),
    on_time(1, 0),
    on_time(10),
    on_time(12, 11, 10),
    on_time(12, 11, 1, 0),
    on_time(10, -5),
    on_time(OLD),
    on_time(OLD, 12),
    on_time(OLD, 12, 11, 1),
)
# Moved by jitter or by a calendar.
MOVED = (
    (Date(12, 1), Date(11, 11)),
    (Date(12, 12), Date(11, -5)),
    (Date(12, 10), Date(11, 11)),
    (Date(12, 12), Date(11, OLD)),
)
PAUSES = (
    None,
    Pause(11, 10, keep=False),
    Pause(2, None, keep=False),
    Pause(OLD + 1, 5, keep=False),
    Pause(11, None, keep=True),
    Pause(11, 5, keep=True),
)


def live_jobs(origin: str) -> tuple[tuple[Live, ...], ...]:
    """What may be there of one origin: running, claimable, backing off, waiting for its limit, held, two of them."""
    has_slot = [(Live(status, origin, True),) for status in ("running", "pending", "scheduled", "waiting")]
    return (
        *has_slot,
        (Live("held", origin, False),),
        (Live("running", origin, True), Live("waiting", origin, False)),
    )


BY_HAND_RUNNING = (Live("running", "manual", True),)
LIVE = (
    (),
    *live_jobs("schedule"),
    *live_jobs("backfill"),
    (Live("running", "backfill", False),),  # one of those that may overlap
    (Live("running", "backfill", True), Live("waiting", "schedule", False)),
    BY_HAND_RUNNING,
)


def product(
    catchup: Iterable[str], overlap: Iterable[str], dates: Iterable[tuple[Date, ...]], live: Iterable[tuple[Live, ...]]
) -> list[Case]:
    """Every combination, under each pause; once more not planned up to now, which has nothing to do with live jobs."""
    cases = [Case(*each) for each in itertools.product(catchup, overlap, dates, live, PAUSES)]
    return [*cases, *(replace(case, is_planned=False) for case in cases if not case.live)]


# A pass decides so many of the dates: all, half, or about one of each schedule.
PASSES = {"one": 1, "two": 2, "many": 7}


# Policies, dates, what is live, the pause; the outcome of each date, the statuses of the jobs made, of those there.
RUNNING = (Live("running", "schedule", True),)
BACKFILLING = (Live("running", "backfill", True),)
BACKING_OFF = (Live("scheduled", "schedule", True),)
HELD = (Live("held", "schedule", False),)
QUEUED = (Live("running", "schedule", True), Live("waiting", "schedule", False))
TWO_HOURS = Pause(120, None, keep=False)
BY_HAND = [
    # not late: whatever catchup says
    ("latest", "queue", on_time(1, 0), (), None, "enqueued, enqueued", "pending, waiting", ""),
    ("none", "queue", on_time(2), (), None, "enqueued", "pending", ""),
    # late
    ("latest", "queue", on_time(12, 11, 10), (), None, "missed coalesced, missed coalesced, enqueued", "pending", ""),
    ("all", "queue", on_time(12, 11), (), None, "enqueued, enqueued", "pending, waiting", ""),
    ("none", "queue", on_time(12, 1), (), None, "missed late, enqueued", "pending", ""),
    ("latest", "queue", on_time(12, 1), (), None, "missed coalesced, enqueued", "pending", ""),
    ("latest", "queue", on_time(10, -5), (), None, "enqueued, planned", "pending", ""),
    ("all", "queue", on_time(OLD, 12), (), None, "missed too_old, enqueued", "pending", ""),
    ("latest", "queue", (Date(12, 12), Date(11, OLD)), (), None, "enqueued, missed too_old", "pending", ""),
    # overlap
    ("all", "allow", on_time(1, 0), RUNNING, None, "enqueued, enqueued", "pending, pending", "running"),
    ("all", "queue", on_time(1, 0), RUNNING, None, "enqueued, enqueued", "waiting, waiting", "running"),
    ("all", "skip", on_time(1, 0), (), None, "enqueued, skipped overlap", "pending", ""),
    ("all", "skip", on_time(1), RUNNING, None, "skipped overlap", "", "running"),
    ("all", "skip", on_time(1), BACKING_OFF, None, "skipped overlap", "", "scheduled"),
    ("all", "skip", on_time(1), HELD, None, "enqueued", "pending", "held"),
    ("all", "skip", on_time(1), BACKFILLING, None, "enqueued", "waiting", "running"),
    ("all", "queue_one", on_time(1, 0), RUNNING, None, "enqueued, skipped overlap", "waiting", "running"),
    ("all", "queue_one", on_time(1), QUEUED, None, "skipped overlap", "", "running, waiting"),
    ("all", "cancel_running", on_time(1), RUNNING, None, "enqueued", "waiting", "asked"),
    ("all", "cancel_running", on_time(1), QUEUED, None, "enqueued", "waiting", "asked, cancelled"),
    ("all", "cancel_running", on_time(1), BACKING_OFF, None, "enqueued", "pending", "cancelled"),
    ("all", "cancel_running", on_time(1), BACKFILLING, None, "enqueued", "waiting", "running"),
    ("all", "cancel_running", on_time(1, 0), (), None, "enqueued, enqueued", "cancelled, pending", ""),
    # pauses, by due_at, from the first instant up to but without the last
    ("latest", "queue", on_time(1), (), TWO_HOURS, "skipped paused", "", ""),
    ("all", "allow", on_time(12, 11, 10), (), PAUSES[1], "enqueued, skipped paused, enqueued", "pending, pending", ""),
    ("latest", "queue", on_time(12, 11), (), PAUSES[1], "enqueued, skipped paused", "pending", ""),
    ("latest", "queue", on_time(OLD), (), PAUSES[3], "skipped paused", "", ""),
    ("all", "queue", on_time(12, 11, 1), (), PAUSES[4], "enqueued, planned, planned", "pending", ""),
    ("none", "queue", on_time(11, 1), (), PAUSES[5], "missed late, enqueued", "pending", ""),
]


@pytest.mark.parametrize(("catchup", "overlap", "dates", "live", "pause", "outcomes", "made", "remaining"), BY_HAND)
def test_the_model_says_what_the_design_says(
    catchup: str,
    overlap: str,
    dates: tuple[Date, ...],
    live: tuple[Live, ...],
    pause: Pause | None,
    outcomes: str,
    made: str,
    remaining: str,
) -> None:
    outcome = expected(Case(catchup, overlap, dates, live, pause))
    assert (", ".join(outcome.dates), ", ".join(outcome.statuses), ", ".join(outcome.live)) == (
        outcomes,
        made,
        remaining,
    )


def test_the_model_waits_until_the_schedule_is_planned_up_to_now() -> None:
    late = Case("latest", "queue", on_time(OLD, 10, 1), is_planned=False)
    assert expected(late).dates == ("missed too_old", "planned", "enqueued")
    assert expected(replace(late, catchup="all")).dates == ("missed too_old", "enqueued", "enqueued")


def test_the_model_says_what_a_job_covers() -> None:
    case = Case("latest", "queue", on_time(OLD, 12, 11, 1, 0))
    assert expected(case).covers == (None, None, None, OLD, None)


# --- the cases in a database ------------------------------------------------------------------------------------------


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database, autocommit=False) as connection:
        yield connection


def test_every_case_ends_as_the_model_says_in_any_number_of_passes(db: Connection) -> None:
    cases = product(CATCHUP, OVERLAP, (*DATES, *MOVED), LIVE)
    add_cases(db, cases)
    for passes in PASSES.values():
        with undone(db):
            fire_in(db, cases, passes)
            compare(db, cases, expected)
            assert violations(db) == {}


@pytest.mark.parametrize("is_overlap_allowed", [False, True])
def test_a_backfill_fills_every_case_whatever_its_policies_are(db: Connection, is_overlap_allowed: bool) -> None:
    cases = product(["latest"], OVERLAP, DATES + MOVED, LIVE)
    add_cases(db, cases)
    with undone(db):
        fill(db, cases, ["planned"], is_overlap_allowed=is_overlap_allowed)
        compare(db, cases, lambda case: expected_of_fill(case, is_overlap_allowed))
    oldest = [replace(case, dates=case.dates[:1]) for case in cases]
    fill(db, oldest, ["planned"], is_overlap_allowed=is_overlap_allowed)
    fill(db, cases, ["planned"], is_overlap_allowed=is_overlap_allowed)
    compare(db, cases, lambda case: expected_of_fill(case, is_overlap_allowed))
    assert fire(db, NOON)[:4] == ("idle", 0, 0, 0)
    assert violations(db) == {}


def test_a_backfill_makes_jobs_of_what_a_pass_missed_or_skipped(db: Connection) -> None:
    cases = product(["latest", "none"], OVERLAP, DATES, LIVE)
    add_cases(db, cases)
    fire_in(db, cases, 1)
    fill(db, cases, ["missed", "skipped"])
    compare(db, cases, filled_afterwards, ignoring_covers=True)
    assert violations(db) == {}


def fill(db: Connection, cases: Sequence[Case], states: list[str], *, is_overlap_allowed: bool = False) -> None:
    """Fill the dates of all cases that are due and in one of these states, by backfills of some dates each."""
    wanted = [(n, minutes_ago(date.logical)) for n, case in enumerate(cases, start=1) for date in case.dates]
    for first in range(0, len(wanted), FILLED_AT_ONCE):
        slice_ = wanted[first : first + FILLED_AT_ONCE]
        row = db.execute(
            "insert into sched.backfills (actor, since, kinds, priority, is_overlap_allowed)"
            " values ('test', '', '{}', 1000, %s) returning id",
            (is_overlap_allowed,),
        ).fetchone()
        assert row is not None
        db.execute(
            """
            select f.*
            from (
              select array_agg(o.schedule_id) as ids, array_agg(o.revision) as revisions,
                     array_agg(o.logical_date) as logical_dates, array_agg(o.due_at) as due_ats,
                     array_agg(o.wall) as walls, array_agg(o.fold) as folds, array_agg(o.local_date) as local_dates,
                     array_agg(o.interval_start) as interval_starts
              from sched.occurrences o
              join unnest(%(ids)s::integer[], %(dates)s::timestamptz[]) as d (id, logical_date)
                on d.id = o.schedule_id and d.logical_date = o.logical_date
            ) a,
            sched.fill(%(backfill)s, %(states)s, a.ids, a.revisions, a.logical_dates, a.due_ats, a.walls, a.folds,
                       a.local_dates, a.interval_starts, %(now)s) f
            """,
            {
                "backfill": row[0],
                "states": states,
                "ids": [n for n, _ in slice_],
                "dates": [at for _, at in slice_],
                "now": NOON,
            },
        )


def fire_in(db: Connection, cases: Sequence[Case], passes: int) -> None:
    """Decide all cases in so many passes of equal size."""
    dates = sum(outcome != "planned" for case in cases for outcome in expected(case).dates)
    while fire(db, NOON, dates // passes + 1)[4]:
        pass


@contextlib.contextmanager
def undone(db: Connection) -> Iterator[None]:
    """Take back what happens inside."""
    with db.transaction(force_rollback=True):
        yield


def compare(
    db: Connection, cases: Sequence[Case], model: Callable[[Case], Outcome], *, ignoring_covers: bool = False
) -> None:
    """Fail with the first cases that ended otherwise than they should."""
    wrong = []
    for case, found in zip(cases, outcomes_of(db, cases), strict=True):
        should = model(case)
        if ignoring_covers:
            should = replace(should, covers=found.covers)
        if found != should:
            wrong.append(f"{case}\n  is     {found}\n  should {should}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases:\n" + "\n".join(wrong[:20])


def add_cases(db: Connection, cases: Sequence[Case]) -> None:
    """A schedule for each case, whose id is the case's place counted from 1; and a limit that is full."""
    numbered = list(enumerate(cases, start=1))
    copy(
        db,
        "schedules",
        "id, name, owner, revision, applied_at, planned_until, plan_at",
        (
            (n, f"s{n}", "test", 1, minutes_ago(30 * 1440), minutes_ago(-60 if case.is_planned else 60), "9999-01-01")
            for n, case in numbered
        ),
    )
    copy(
        db,
        "schedule_revisions",
        "schedule_id, revision, valid_from, hash, definition, file, applied_by, job_type, payload, key_template,"
        " queue, priority, max_attempts, retry_base, retry_max, retry_jitter, on_final_failure, catchup, grace,"
        " max_age, overlap",
        (
            (n, 1, minutes_ago(30 * 1440), "", "{}", "test.yaml", "test", "test.noop", "{}",
             "{schedule}:{logical_date}", "default", 100, 5, "10 s", "1 hour", 0, "continue", case.catchup,
             f"{GRACE} minutes", f"{MAX_AGE} minutes", case.overlap)
            for n, case in numbered
        ),
    )  # fmt: skip
    copy(db, "limits", "key, slots", [("full", 1), *((f"${n}", 1) for n, _ in numbered)])
    copy(
        db,
        "pauses",
        "schedule_id, from_at, until_at, keep, actor",
        (
            (n, minutes_ago(p.since), None if p.until is None else minutes_ago(p.until), p.keep, "test")
            for n, case in numbered
            if (p := case.pause)
        ),
    )
    copy(
        db,
        "occurrences",
        "schedule_id, revision, logical_date, due_at, interval_start, local_date",
        (
            (n, 1, at := minutes_ago(date.logical), minutes_ago(date.due), minutes_ago(start), at.date())
            for n, case in numbered
            for date, start in with_intervals(case)
        ),
    )
    add_live_jobs(db, numbered)
    db.execute("analyze")


def add_live_jobs(db: Connection, numbered: Iterable[tuple[int, Case]]) -> None:
    """The jobs that schedules have already, ids counted from 1, on dates long ago; and one that fills the limit."""
    live = [(n, case, place, job) for n, case in numbered for place, job in enumerate(case.live)]
    db.execute("insert into sched.backfills (actor, since, kinds, priority) values ('test', '', '{}', 1000)")
    jobs, dates = [], []
    for job_id, (n, case, place, job) in enumerate(live, start=1):
        at = None if job.origin == "manual" else minutes_ago(20 * 1440 - place)
        is_keyed = case.overlap != "allow" and (job.has_slot or job.status in ("waiting", "held"))
        is_limited = job.status == "waiting" and (job.has_slot or not is_keyed)
        lease = [str(n).rjust(32, "0"), str(job_id).rjust(32, "0"), NOON] if job.status == "running" else [None] * 3
        jobs.append(
            [job_id, "test.noop", job.status, job.origin, n, f"s{n}", at, 1, 1000 if job.origin == "backfill" else 100,
             1 if job.origin == "backfill" else None, f"${n}" if is_keyed else None, "full" if is_limited else None,
             ("full" if is_limited else f"${n}") if job.status == "waiting" else None, is_keyed and job.has_slot,
             job.status == "running", *lease]
        )  # fmt: skip
        if at is not None:
            dates.append((n, 1, at, at, at - MINUTE, at.date(), "enqueued", at, "test", job_id))
    jobs.append(
        [len(live) + 1, "test.noop", "pending", "enqueue", None, None, None, None, 100, None, None, "full", None, False,
         False, None, None, None]
    )  # fmt: skip
    copy(
        db,
        "jobs",
        "id, job_type, status, origin, schedule_id, schedule, logical_date, revision, priority, backfill_id,"
        " overlap_key, limit_key, waiting_for, holds_overlap, attempt_count, lease_owner, lease_token,"
        " lease_expires_at",
        ([*row[:14], int(row[14]), *row[15:]] for row in jobs),
    )
    db.execute("update sched.jobs set holds_limit = true where limit_key = 'full' and status = 'pending'")
    db.execute("select setval(pg_get_serial_sequence('sched.jobs', 'id'), %s)", (len(jobs),))
    copy(
        db,
        "occurrences",
        "schedule_id, revision, logical_date, due_at, interval_start, local_date, state, decided_at, decided_by,"
        " job_id",
        dates,
    )


def outcomes_of(db: Connection, cases: Sequence[Case]) -> list[Outcome]:
    """What became of each case."""
    rows = db.execute(
        """
        select o.schedule_id, o.logical_date, concat_ws(' ', o.state, o.reason), j.covers_from, j.status
        from sched.occurrences o
        left join sched.jobs j on j.id = o.job_id
        where o.logical_date > %s
        """,
        (minutes_ago(10 * 1440),),
    ).fetchall()
    by_date = {(schedule, at): rest for schedule, at, *rest in rows}
    job_ids = itertools.count(1)
    live = dict(
        db.execute("select id, case when cancel_requested_at is null then status else 'asked' end from sched.jobs")
    )
    outcomes = []
    for n, case in enumerate(cases, start=1):
        found = [by_date[n, minutes_ago(date.logical)] for date in case.dates]
        outcomes.append(
            Outcome(
                tuple(row[0] for row in found),
                tuple(None if row[1] is None else (NOON - row[1]) // MINUTE for row in found),
                tuple(sorted(row[2] for row in found if row[2] is not None)),
                tuple(live[next(job_ids)] for _ in case.live),
            )
        )
    return outcomes


def minutes_ago(minutes: int) -> datetime:
    return NOON - timedelta(minutes=minutes)


def copy(db: Connection, table: str, columns: LiteralString, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows into a table of sched."""
    into = sql.SQL("copy sched.{} ({}) from stdin").format(sql.Identifier(table), sql.SQL(columns))
    with db.cursor() as cursor, cursor.copy(into) as writer:
        for row in rows:
            writer.write_row(row)

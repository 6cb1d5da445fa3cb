"""Definitions changed at any instant of a virtual history: no date is lost, none is made twice, the past never fires.

The real apply, planner and ``sched.fire`` run at moments of the test's choosing. What was expected is written down a
second time here, change by change, and compared with ``core.ledger.history`` and with the ledger.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.core.ledger.history import expected_between
from scheduler.core.models import (
    CalendarRule,
    Catchup,
    CatchupPolicy,
    Cron,
    Definition,
    DefinitionSet,
    DstRule,
    Every,
    ExcludedDays,
    GapRule,
    OverlapPolicy,
    RepeatRule,
    Rrule,
    Rule,
    Shift,
    Timing,
)
from scheduler.core.time.occurrences import occurrences_between
from scheduler.services.apply import apply_definitions
from scheduler.storage.database import Connection
from scheduler.storage.schedules import DefinitionCache, histories
from tests.support.database import connect
from tests.support.invariants import violations
from tests.support.virtual import outcomes, tick_at, utc

BEGIN, END = utc("2026-03-26 00:00"), utc("2026-04-07 00:00")
"""Berlin's clock goes forward on 29 March, those of Auckland and Lord Howe go back on 4 April."""

AFTERWARDS = timedelta(days=8)
"""So long after the end every date of the history is due, shifted ones too."""

STEPS = 30
NAMES = ("a", "b", "c", "d")

RULES: list[Rule] = [
    Cron(expression="*/20 * * * *"),
    Cron(expression="0 */3 * * *"),
    Cron(expression="30 2 * * *"),
    Cron(expression="15,45 1-3 * * *"),
    Cron(expression="0 9 * * mon-fri"),
    Every(interval=timedelta(minutes=50)),
    Rrule(text="DTSTART:20260101T023000\nRRULE:FREQ=DAILY"),
    Rrule(text="DTSTART:20260101T000000\nRRULE:FREQ=HOURLY;INTERVAL=2"),
]
ZONES = ["Europe/Berlin", "Pacific/Auckland", "Australia/Lord_Howe", "UTC"]
WEEKEND = ExcludedDays(name="weekend", weekdays=frozenset({5, 6}))
CALENDARS = [
    None,
    None,
    CalendarRule(excluded=(WEEKEND,), shift=Shift.SKIP),
    CalendarRule(excluded=(WEEKEND,), shift=Shift.NEXT),
]
CLOCK_RULES = [DstRule(), DstRule(gap=GapRule.SKIP), DstRule(overlap=RepeatRule.BOTH), DstRule(overlap=RepeatRule.LAST)]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection
        assert violations(connection) == {}


@dataclass
class Told:
    """What the test expects of one schedule: each rule with the time ``(since, until]`` it was in force."""

    spans: list[tuple[Timing, datetime, datetime]] = field(default_factory=list)
    since: datetime = BEGIN
    current: Definition | None = None

    def change(self, definition: Definition | None, at: datetime) -> None:
        if self.current is not None:
            self.spans.append((self.current.timing, self.since, at))
        self.current, self.since = definition, at

    def dates(self) -> list[datetime]:
        return [
            date.logical_date
            for timing, since, until in self.spans
            for date in occurrences_between(timing, since, until)
        ]


class Story:
    """A folder of definitions that is edited, applied and ticked at drawn moments."""

    def __init__(self, db: Connection, chance: random.Random) -> None:
        self.db, self.chance = db, chance
        self.told = {name: Told() for name in NAMES}
        self.names = {name: name for name in NAMES}
        for name in NAMES:
            self.told[name].current = self.drawn(name)

    def drawn(self, key: str, start: datetime | None = None) -> Definition:
        timing = Timing(
            name=self.names[key],
            rule=self.chance.choice(RULES),
            timezone=self.chance.choice(ZONES),
            dst=self.chance.choice(CLOCK_RULES),
            calendar=self.chance.choice(CALENDARS),
            start=start,
        )
        return Definition(
            name=self.names[key],
            owner="team",
            timing=timing,
            job_type="x",
            file="a.yaml",
            catchup=Catchup(policy=CatchupPolicy.ALL, max_age=timedelta(days=400)),
            overlap=OverlapPolicy.ALLOW,
        )

    def apply(self, now: datetime) -> None:
        wanted = {told.current.name: told.current for told in self.told.values() if told.current is not None}
        apply_definitions(
            self.db,
            DefinitionSet(schedules=wanted, limits={}, owners=frozenset({"team"})),
            actor="test",
            allow_retire=True,
            now=now,
        )

    def edit(self, key: str, now: datetime) -> None:
        """One change of a file, as people make them."""
        told = self.told[key]
        edits: list[Callable[[], Definition | None]] = [lambda: self.drawn(key)]
        if told.current is not None:
            current = told.current
            edits += [
                lambda: replace(current, timing=replace(current.timing, timezone=self.chance.choice(ZONES))),
                lambda: replace(current, timing=replace(current.timing, calendar=self.chance.choice(CALENDARS))),
                lambda: replace(current, queue=self.chance.choice(["default", "other"])),
                lambda: replace(current, file=self.chance.choice(["a.yaml", "b.yaml"])),
                lambda: self.renamed(key, current),
                lambda: None,
            ]
        new = self.chance.choice(edits)()
        if new is None and sum(other.current is not None for other in self.told.values()) == 1:
            return
        told.change(new, now)

    def renamed(self, key: str, current: Definition) -> Definition:
        former, self.names[key] = current.name, f"{key}.{self.chance.randrange(10**9)}"
        timing = replace(current.timing, name=self.names[key])
        return replace(current, name=self.names[key], timing=timing, renamed_from=former)

    def moments(self) -> list[datetime]:
        """Drawn instants in order; every second one is a whole hour, at which dates are due."""
        span = int((END - BEGIN).total_seconds())
        drawn = {BEGIN + timedelta(seconds=self.chance.randrange(span)) for _ in range(STEPS)}
        return sorted(at.replace(minute=0, second=0) if at.second % 2 else at for at in drawn)

    def end(self) -> None:
        """Let every date up to the end be decided."""
        for told in self.told.values():
            told.change(None, END)
        self.apply_nothing_more()
        tick_at(self.db, END + AFTERWARDS)

    def apply_nothing_more(self) -> None:
        """Retire everything at the end, so that the histories end there; one schedule must stay and is parked."""
        parked = Definition(
            name="parked", owner="team", timing=Timing(name="parked", rule=Cron(expression="0 0 30 2 *")), job_type="x"
        )
        wanted = DefinitionSet(schedules={"parked": parked}, limits={}, owners=frozenset({"team"}))
        apply_definitions(self.db, wanted, actor="test", allow_retire=True, now=END)

    def ids(self) -> dict[str, int]:
        rows = self.db.execute("select name, id from sched.schedules where name <> 'parked'").fetchall()
        return {name.partition(".")[0]: schedule_id for name, schedule_id in rows}

    def decided(self, schedule_id: int) -> list[datetime]:
        rows = self.db.execute(
            "select logical_date from sched.occurrences where schedule_id = %s and state = 'enqueued' order by 1",
            (schedule_id,),
        ).fetchall()
        return [row[0] for row in rows]


@pytest.mark.parametrize("seed", range(6))
def test_changes_at_any_instant_lose_no_date_and_make_none_twice(db: Connection, seed: int) -> None:
    """Rule, zone, calendar, queue and file change, schedules are renamed, retired and added again; ticks come late."""
    story = Story(db, random.Random(seed))
    story.apply(BEGIN)
    for now in story.moments():
        for key in story.chance.sample(NAMES, story.chance.randint(0, 2)):
            story.edit(key, now)
        if story.chance.random() < 0.5:
            story.apply(now)
            tick_at(db, now)
        else:
            tick_at(db, now)
            story.apply(now)
    story.end()

    ids = story.ids()
    past = histories(db, ids.values(), DefinitionCache())
    count = 0
    for key, told in story.told.items():
        found = story.decided(ids[key])
        expected = [date.occurrence.logical_date for date in expected_between(past[ids[key]], BEGIN, END)]
        assert found == expected == told.dates(), key
        count += len(found)
    rows = db.execute("select state, count(*) from sched.occurrences group by 1").fetchall()
    assert dict(rows) == {"enqueued": count}
    (jobs,) = db.execute("select count(distinct (schedule_id, logical_date)) from sched.jobs").fetchall()
    (all_jobs,) = db.execute("select count(*) from sched.jobs").fetchall()
    assert jobs == all_jobs == (count,)
    print(
        f"seed {seed}: {count} dates, {len(past)} schedules, {sum(len(each.spans) for each in past.values())} revisions"
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_start_moved_to_and_fro_fires_what_lies_between_the_changes_and_nothing_of_the_past(
    db: Connection, seed: int
) -> None:
    chance = random.Random(100 + seed)
    story = Story(db, chance)
    for told in story.told.values():
        told.current = None
    story.told["a"].current = story.drawn("a")
    story.apply(BEGIN)
    for now in story.moments():
        tick_at(db, now)
        current = story.told["a"].current
        assert current is not None
        start = chance.choice([None, now - timedelta(days=40), now, now + timedelta(hours=chance.randint(1, 60))])
        story.told["a"].change(replace(current, timing=replace(current.timing, start=start)), now)
        story.apply(now)
    tick_at(db, END)
    story.end()
    ids = story.ids()
    assert story.decided(ids["a"]) == story.told["a"].dates()


def at_noon(name: str, **timing: object) -> Definition:
    given = {"timezone": "UTC", **timing}
    return Definition(
        name=name,
        owner="team",
        timing=Timing(name=name, rule=Cron(expression="0 12 * * *"), **given),  # type: ignore[arg-type]
        job_type="x",
    )


def applied(db: Connection, now: datetime, *definitions: Definition) -> list[str]:
    wanted = DefinitionSet(schedules={each.name: each for each in definitions}, limits={}, owners=frozenset({"team"}))
    result = apply_definitions(db, wanted, actor="test", allow_retire=True, now=now)
    return [f"{change.kind.value} {change.name}" for change in result.changes]


def test_a_calendar_that_would_have_made_a_date_due_before_it_was_applied_records_it_as_missed(db: Connection) -> None:
    """Sunday's noon moves to Friday's, which has passed on Saturday; it is told, and does not fire at once."""
    saturday = datetime(2026, 3, 28, 15, 0, tzinfo=UTC)
    applied(db, saturday - timedelta(days=3), at_noon("s"))
    tick_at(db, saturday)
    before = outcomes(db, "s")
    backwards = CalendarRule(excluded=(WEEKEND,), shift=Shift.PREVIOUS)
    assert applied(db, saturday, at_noon("s", calendar=backwards)) == ["changed s"]
    tick_at(db, saturday + timedelta(hours=1))
    rows = db.execute(
        "select to_char(logical_date at time zone 'UTC', 'DD HH24:MI'), state, reason from sched.occurrences"
        " where logical_date > %s order by logical_date",
        (saturday,),
    ).fetchall()
    assert rows[:2] == [("29 12:00", "missed", "due_before_apply"), ("30 12:00", "planned", None)]
    assert outcomes(db, "s")["enqueued"] == before["enqueued"] == 1


def test_a_schedule_renamed_with_jobs_waiting_keeps_them_and_their_history(db: Connection) -> None:
    """Jobs made under the old name run under it; dates go on without a gap and without a second job."""
    wednesday = datetime(2026, 3, 25, 15, 0, tzinfo=UTC)
    applied(db, wednesday, replace(at_noon("old"), catchup=Catchup(policy=CatchupPolicy.ALL)))
    tick_at(db, wednesday + timedelta(days=3))
    old = db.execute("select schedule_id, schedule, status, idempotency_key from sched.jobs order by id").fetchall()
    assert [row[1:3] for row in old] == [("old", "pending"), ("old", "waiting"), ("old", "waiting")]

    renamed = replace(at_noon("new"), renamed_from="old", catchup=Catchup(policy=CatchupPolicy.ALL))
    assert applied(db, wednesday + timedelta(days=3), renamed) == ["renamed new"]
    tick_at(db, wednesday + timedelta(days=5))

    jobs = db.execute("select schedule_id, schedule, status, idempotency_key from sched.jobs order by id").fetchall()
    assert jobs[:3] == old
    assert [row[:3] for row in jobs[3:]] == [(old[0][0], "new", "waiting")] * 2
    days = db.execute("select logical_date from sched.occurrences where state = 'enqueued' order by 1").fetchall()
    assert [row[0].day for row in days] == [26, 27, 28, 29, 30]
    slots = db.execute("select count(*), sum(slots) from sched.limits").fetchall()
    assert slots == [(1, 1)]


def test_a_schedule_that_was_retired_and_is_added_again_has_no_dates_of_the_time_between(db: Connection) -> None:
    wednesday = datetime(2026, 3, 25, 15, 0, tzinfo=UTC)
    day = timedelta(days=1)
    other = at_noon("other")
    applied(db, wednesday, at_noon("s"), other)
    tick_at(db, wednesday + day)
    assert applied(db, wednesday + day, other) == ["retired s"]
    tick_at(db, wednesday + 4 * day)
    assert applied(db, wednesday + 4 * day, at_noon("s"), other) == ["revived s"]
    tick_at(db, wednesday + 6 * day)
    days = db.execute(
        "select extract(day from o.logical_date at time zone 'UTC')::int, o.revision from sched.occurrences o"
        " join sched.schedules s on s.id = o.schedule_id where s.name = 's' and o.state <> 'planned' order by 1"
    ).fetchall()
    assert days == [(26, 1), (30, 2), (31, 2)]
    assert Counter(outcomes(db, "other"))["planned"] >= 2

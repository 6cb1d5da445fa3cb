"""Cycles of kill -9 at named points, with two tickers alive, and what must be true afterwards.

Each cycle starts one ticker, backfill or apply that dies at one point of its transactions: before or after a query,
right after a commit, or inside a statement that the server is still executing. Reaching the point is proved by the
note the process leaves, or by its backend waiting there. Then the command is repeated without a kill. At the end every
expected date has exactly one row and one job; expectations are computed here, by counting seconds and quarters.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from scheduler.services.gaps import GapRequest, find_gaps
from scheduler.storage.database import Connection, database_now
from tests.support.cli import sched, write_definitions
from tests.support.database import connect
from tests.support.fleet import Fleet, fleet
from tests.support.invariants import violations
from tests.support.kill_points import Nursery, Victim
from tests.support.wait import wait_for

PATIENCE = 90.0
VICTIM = "victim"
LOCK = 20_260_302
"""The first of the advisory locks at which the victim's statement is stopped inside the server, one per trigger."""

BEATS = 4
"""Schedules of every second; jitter spreads them, so that each ticker gets its share of the passes."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
DAY = timedelta(days=1)

POINTS: dict[str, list[str]] = {
    "ticker": [
        "before fire",
        "after fire",
        "after commit of fire",
        "inside insert on jobs",
        "inside update on occurrences",
    ],
    "planner": [
        "after schedules_due_for_planning",
        "after revisions_of",
        "before occurrences_plan",
        "after occurrences_plan",
        "after commit of occurrences_plan",
        "inside insert on occurrences",
    ],
    "backfill": [
        "before backfills_insert",
        "after backfills_insert",
        "before occurrences_fill",
        "after occurrences_fill",
        "after backfills_count",
        "after commit of backfills_count",
        "before backfills_complete",
        "after backfills_complete",
        "inside insert on jobs",
        "inside insert on occurrences",
    ],
    "apply": [
        "after schedules_list",
        "after pass_lock_take",
        "after schedules_lock",
        "after revisions_close",
        "after revisions_insert",
        "after occurrences_unplan",
        "after schedules_revise",
        "after occurrences_plan",
        "after commit of occurrences_plan",
        "inside insert on schedule_revisions",
        "inside insert on occurrences",
    ],
}

# Statement triggers that stop the victim, and nobody else, for as long as the test holds the trigger's lock.
STOPPED = ["insert on jobs", "insert on occurrences", "update on occurrences", "insert on schedule_revisions"]
STOPS = f"""
create function public.stop_victim() returns trigger language plpgsql as $$
begin
  if current_setting('application_name') = '{VICTIM}' then
    perform pg_advisory_xact_lock(tg_argv[0]::bigint);
  end if;
  return null;
end
$$;
""" + "".join(
    f"create trigger stop_{number} before {place.replace(' on ', ' on sched.')} for each statement"
    f" execute function public.stop_victim({LOCK + number});\n"
    for number, place in enumerate(STOPPED)
)


@dataclass(frozen=True, slots=True)
class Cycle:
    """Who dies where; ``arrival`` is how often it passes the point before."""

    kind: str
    point: str
    arrival: int


@dataclass(slots=True)
class Report:
    """What happened, and every way in which the end was not what it must be."""

    seed: int
    cycles: list[Cycle] = field(default_factory=list)
    dates: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: dict[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"seed {self.seed}: {len(self.cycles)} cycles of kill -9, each at a point that was reached"
        for (kind, point), times in sorted(Counter((cycle.kind, cycle.point) for cycle in self.cycles).items()):
            yield f"  {kind:<9} {point:<36} {times:>4}"
        faults = self.wrong or "none"
        yield f"{self.dates} expected dates, {self.lost} lost, {self.doubled} doubled, other faults: {faults}"


def choose(seed: int, count: int) -> list[Cycle]:
    """Cycles in random order; every kind comes up equally often, and every point before one is repeated."""
    chance = random.Random(seed)
    left: dict[str, list[str]] = {kind: [] for kind in POINTS}
    chosen = []
    for number in range(count):
        kind = list(POINTS)[number % len(POINTS)]
        if not left[kind]:
            left[kind] = chance.sample(POINTS[kind], len(POINTS[kind]))
        point = left[kind].pop()
        is_repeated = kind == "ticker" or point.endswith(("occurrences_fill", "backfills_count"))
        arrival = chance.randint(1, 2) if is_repeated and not point.startswith("inside") else 1
        chosen.append(Cycle(kind=kind, point=point, arrival=arrival))
    return chosen


def run_cycles(
    dsn: str, folder: Path, cycles: list[Cycle], seed: int, say: Callable[[str], None] = lambda line: None
) -> Report:
    """Run these cycles on an empty migrated database, with two tickers alive throughout; returns what came of it."""
    with connect(dsn) as db, Nursery(make_conninfo(dsn, application_name=VICTIM), folder) as nursery:
        db.execute(STOPS)
        with fleet(dsn, folder) as tickers:
            stage = Stage(dsn, db, folder, nursery, tickers, expected_cycles=len(cycles))
            for number, cycle in enumerate(cycles, 1):
                begin = time.monotonic()
                stage.run(cycle)
                say(f"{number:>4} {cycle.kind:<9} {cycle.point} x{cycle.arrival}  {time.monotonic() - begin:.1f} s")
            until = stage.settle()
        return stage.judge(until, cycles, seed)


class Stage:
    """The schedules, the processes that live, and one victim at a time."""

    def __init__(
        self, dsn: str, db: Connection, folder: Path, nursery: Nursery, tickers: Fleet, expected_cycles: int
    ) -> None:
        self._dsn = dsn
        self._db = db
        self._nursery = nursery
        self._tickers = tickers
        self._folder = folder
        self._applied = 0
        self._days = expected_cycles + 2
        today = database_now(db).replace(hour=0, minute=0, second=0, microsecond=0)
        self._first_day = today - self._days * DAY
        self._filled = 0
        self._moving = folder / "moving"
        self._define()
        for name in ("ticker-1", "ticker-2"):
            tickers.start(name, "tick")
        wait_for(lambda: self._count("select count(*) from sched.jobs") > 0, PATIENCE, "the tickers to fire")

    def run(self, cycle: Cycle) -> None:
        """Let the victim die at its point, see that it did, and put right what it left undone."""
        match cycle.kind:
            case "ticker":
                self._die(cycle, "tick")
            case "planner":
                with self._scarce_dates():
                    self._die(cycle, "tick")
            case "backfill":
                self._kill_backfill(cycle)
            case "apply":
                self._kill_apply(cycle)
        assert all(not self._tickers.has_ended(name) for name in ("ticker-1", "ticker-2")), "a live ticker ended"

    def settle(self) -> datetime:
        """Wait until everything due until now is decided, then stop the tickers; returns that moment."""
        until = database_now(self._db)
        wait_for(lambda: not self._count(_UNSETTLED, until, until), PATIENCE, "everything until now to be decided")
        self._tickers.stop("ticker-1", "ticker-2")
        return until

    def judge(self, until: datetime, cycles: list[Cycle], seed: int) -> Report:
        """Compare the ledger and the jobs with what had to be there, counted here."""
        expected = self._expected(until)
        report = Report(seed=seed, cycles=cycles, dates=len(expected))
        for query in (
            "select s.name, o.logical_date from sched.occurrences o join sched.schedules s on s.id = o.schedule_id"
            " where o.state = 'enqueued'",
            "select s.name, j.logical_date from sched.jobs j join sched.schedules s on s.id = j.schedule_id",
        ):
            found = Counter(row for row in self._db.execute(query).fetchall() if row[1] <= until)
            report.lost += sum((expected - found).values())
            report.doubled += sum((found - expected).values())
        for state, reason, count in self._db.execute(
            "select state, reason, count(*) from sched.occurrences where state not in ('planned', 'enqueued')"
            " group by 1, 2"
        ).fetchall():
            report.wrong[f"{state} {reason}"] = count
        report.wrong |= violations(self._db)
        gaps = find_gaps(self._db, GapRequest(since=self._first_day, schedules=self._live_names())).gaps
        late = [gap for gap in gaps if gap.logical_date <= until]
        if late:
            report.wrong["gaps"] = len(late)
        return report

    def _die(self, cycle: Cycle, *arguments: str) -> None:
        """Start the victim and see it die at the cycle's point and nowhere else."""
        if cycle.point.startswith("inside "):
            self._die_inside(cycle, *arguments)
            return
        victim = self._nursery.start(*arguments, point=cycle.point, arrival=cycle.arrival)
        code = victim.wait(PATIENCE)
        assert (code, victim.reached) == (-signal.SIGKILL, cycle.point), f"{cycle}: {code}\n{victim.last_words}"
        self._await_no_backend()

    def _die_inside(self, cycle: Cycle, *arguments: str) -> None:
        """Stop the victim's statement inside the server, kill the process, and let the statement go on."""
        place = cycle.point.removeprefix("inside ")
        lock = LOCK + STOPPED.index(place)
        with connect(self._dsn) as holder:
            holder.execute("select pg_advisory_lock(%s)", (lock,))
            victim: Victim = self._nursery.start(*arguments)
            wait_for(
                lambda: victim.has_ended or self._is_stopped_at(lock), PATIENCE, f"the victim to be inside its {place}"
            )
            victim.kill()
            assert victim.wait() == -signal.SIGKILL
            assert self._is_stopped_at(lock), "the backend left before its process was killed"
        self._await_no_backend()

    def _is_stopped_at(self, lock: int) -> bool:
        return bool(
            self._count(
                "select count(*) from pg_locks l join pg_stat_activity a using (pid)"
                " where l.locktype = 'advisory' and not l.granted and a.application_name = %s"
                " and ((l.classid::bigint << 32) | l.objid::bigint) = %s and a.datname = current_database()",
                VICTIM,
                lock,
            )
        )

    def _await_no_backend(self) -> None:
        """Until the server has noticed that the victim is gone, its transaction may still be open."""
        wait_for(lambda: not self._count(_BACKENDS, VICTIM), PATIENCE, "the victim's backends to end")

    @contextmanager
    def _scarce_dates(self) -> Iterator[None]:
        """Cut the beats' planned dates back to two seconds ahead, again and again, so that planners have work."""
        stop = threading.Event()

        def cut() -> None:
            with connect(self._dsn) as own:
                while not stop.wait(0.3):
                    with own.transaction():
                        own.execute("select sched.take_pass_lock()")
                        own.execute(
                            """
                            with cut as (
                              update sched.schedules s
                              set planned_until = clock_timestamp() + interval '2 seconds', plan_at = clock_timestamp()
                              where s.name like 'beat-%' and s.planned_until > clock_timestamp() + interval '2 seconds'
                              returning s.id, s.planned_until
                            )
                            delete from sched.occurrences o using cut c
                            where o.schedule_id = c.id and o.state = 'planned' and o.logical_date > c.planned_until
                            """
                        )

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE)

    def _kill_backfill(self, cycle: Cycle) -> None:
        day = self._first_day + self._filled * DAY
        self._filled += 1
        arguments = (
            *("backfill", "--schedule", "quarters", "--json"),
            *("--since", day.isoformat(), "--until", (day + DAY).isoformat()),
        )
        self._die(cycle, *arguments)
        before = self._count(_FILLED, day, day + DAY)
        ended = sched(*arguments, "--dsn", self._dsn)
        assert ended.code == 0, ended.err
        assert ended.document["inserted"] == 96 - before
        assert self._count(_FILLED, day, day + DAY) == 96

    def _kill_apply(self, cycle: Cycle) -> None:
        before = self._revision()
        self._write_moving(self._applied + 1)
        self._die(cycle, "apply", str(self._moving))
        is_done = cycle.point.startswith("after commit")
        assert self._revision() == before + is_done, f"{cycle}: half an apply"
        ended = sched("apply", str(self._moving), "--dsn", self._dsn)
        assert ended.code == 0, ended.err
        assert self._revision() == before + 1
        self._applied += 1

    def _define(self) -> None:
        beats = "".join(
            f"  beat-{n}:\n    every: 1s\n    jitter: 1s\n    catchup: {{policy: all}}\n    overlap: allow\n"
            "    job: test.noop\n"
            for n in range(BEATS)
        )
        quarters = (
            '  quarters:\n    cron: "*/15 * * * *"\n'
            f"    start: {self._first_day.isoformat()}\n"
            f"    end: {(self._first_day + (self._days - 1) * DAY).isoformat()}\n"
            "    overlap: allow\n    job: test.noop\n"
        )
        steady = write_definitions(self._folder / "steady", beats + quarters)
        self._write_moving(0)
        for place in (steady, self._moving):
            ended = sched("apply", str(place), "--dsn", self._dsn)
            assert ended.code == 0, ended.err

    def _write_moving(self, number: int) -> None:
        """The schedule that every apply changes: every second, every two, every three, and again."""
        write_definitions(
            self._moving,
            f"  moving:\n    every: {number % 3 + 1}s\n    catchup: {{policy: all}}\n    overlap: allow\n"
            "    job: test.noop\n",
        )
        file = self._moving / "schedules.yaml"
        file.write_text(file.read_text().replace("owner: team", "owner: movers"))

    def _revision(self) -> int:
        return self._count("select revision from sched.schedules where name = 'moving'")

    def _live_names(self) -> list[str]:
        return ["moving", *(f"beat-{n}" for n in range(BEATS))]

    def _expected(self, until: datetime) -> Counter[tuple[str, datetime]]:
        """Every date that had to become a job, once, by plain arithmetic."""
        expected: Counter[tuple[str, datetime]] = Counter()
        for name, valid_from, valid_until, every in self._db.execute(
            "select s.name, r.valid_from, r.valid_until, (r.definition #>> '{timing,rule,every}')::interval"
            " from sched.schedule_revisions r join sched.schedules s on s.id = r.schedule_id"
        ).fetchall():
            if name == "quarters":
                continue
            date = EPOCH + ((valid_from - EPOCH) // every + 1) * every
            while date <= min(until, valid_until or until):
                expected[name, date] += 1
                date += every
        for number in range(self._filled * 96):
            expected["quarters", self._first_day + number * QUARTER] += 1
        return expected

    def _count(self, query: str, *parameters: Any) -> int:
        row = self._db.execute(query, parameters or None).fetchone()
        assert row is not None
        return int(row[0])


_FILLED = "select count(*) from sched.jobs where schedule = 'quarters' and logical_date >= %s and logical_date < %s"
_BACKENDS = "select count(*) from pg_stat_activity where application_name = %s and datname = current_database()"
_UNSETTLED = """
select count(*) from sched.schedules s
where s.name <> 'quarters' and (s.planned_until < %s or exists (
  select from sched.occurrences o where o.schedule_id = s.id and o.state = 'planned' and o.logical_date <= %s))
"""

"""Minutes of real time under pg_cron 1.4: no ticker, a restart, outages, and the same dates as the ticker decides.

One server, four databases side by side, because pg_cron's beat cannot be hurried:

    examples  the example schedules every minute, and a worker; pg_cron runs as a role with only the documented grants
    cron      every catch-up policy with overlap allow and queue under pg_cron, whose jobs are switched off meanwhile
    tick      the same definitions under `sched tick`, which is killed meanwhile
    moving    every 10 seconds; from the ticker to pg_cron before the stop, and back to a ticker after it

About four minutes. With SCHED_CAMPAIGN=full eight to nine: five before the stop, and five of outage.
``pytest -s`` prints the figures.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from scheduler.storage.database import Connection, database_now
from tests.support.cli import sched, start_sched
from tests.support.cluster import Cluster
from tests.support.database import connect
from tests.support.invariants import violations
from tests.support.pgcron import new_database, pg_cron_cluster
from tests.support.wait import wait_for

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200)]

REPOSITORY = Path(__file__).resolve().parents[2]
MINUTE = timedelta(minutes=1)
TEN_SECONDS = timedelta(seconds=10)
SPARE = timedelta(seconds=20)
ROLE = "app"
GRANTS_THERE = (
    "grant usage on schema cron to app",
    "grant execute on function cron.schedule_in_database(text, text, text, text, text, boolean) to app",
)
GRANTS_HERE = (
    "grant usage on schema sched to app",
    "grant select, insert, update, delete on all tables in schema sched to app",
)
GRACE = "90s"
HOSTED = "version: 1\nowner: team\ndefaults: {timezone: Europe/Berlin}\nschedules:\n" + "".join(
    f'  {overlap}-{catchup}-{rate}: {{cron: "{cron}", job: test.noop, overlap: {overlap},'
    f" catchup: {{policy: {catchup}, grace: {GRACE}}}}}\n"
    for overlap in ("allow", "queue")
    for catchup in ("latest", "all", "none")
    for rate, cron in (("every", "* * * * *"), ("even", "*/2 * * * *"))
)
MOVING = """\
version: 1
owner: team
schedules:
  moving: {every: 10s, job: test.noop, overlap: allow, catchup: {policy: all, grace: 3m}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long what lasts. The outage of the hosts ends with the stop of the server."""

    running: timedelta
    outage: timedelta
    stop: timedelta


PLANS = {
    "short": Plan(running=MINUTE, outage=timedelta(0), stop=timedelta(seconds=125)),
    "full": Plan(running=5 * MINUTE, outage=5 * MINUTE, stop=2 * MINUTE),
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with pg_cron_cluster(fsync="on") as cluster:
        yield cluster


def test_pg_cron_hosts_as_the_ticker_does_through_outages(cluster: Cluster, tmp_path: Path) -> None:
    plan = PLANS[os.environ.get("SCHED_CAMPAIGN", "short")]
    with Campaign(cluster, tmp_path) as campaign:
        campaign.begin()
        began, ended_running, back = campaign.run(plan)
        campaign.finish()

        with connect(campaign.examples) as db:
            examples_had_every_date(db, began, ended_running)
            missed_examples_were_settled_by_policy(db, ended_running, back)
            report(db, began, ended_running, back)
        no_run_failed(cluster)
        both_hosts_decided_the_same(campaign)
        moving_lost_and_doubled_nothing(campaign)
        for dsn in (campaign.examples, campaign.cron, campaign.tick, campaign.moving):
            with connect(dsn) as db:
                assert violations(db) == {}


class Campaign:
    """The databases and processes of the test, on one server."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[str]] = {}
        for name in ("examples", "cron", "tick", "moving"):
            new_database(cluster, name)
        self._grant()

    @property
    def examples(self) -> str:
        """The examples as the role sees them that pg_cron's jobs run as."""
        return self._cluster.dsn("examples", user=ROLE)

    @property
    def owners_examples(self) -> str:
        """The examples as their owner, the worker, sees them."""
        return self._cluster.dsn("examples")

    @property
    def cron(self) -> str:
        return self._cluster.dsn("cron")

    @property
    def tick(self) -> str:
        return self._cluster.dsn("tick")

    @property
    def moving(self) -> str:
        return self._cluster.dsn("moving")

    def begin(self) -> None:
        """Apply everything, install where pg_cron is the host, and start the processes."""
        self._apply(self.owners_examples, example_definitions())
        for dsn in (self.cron, self.tick):
            self._apply(dsn, {"hosted.yaml": HOSTED})
        self._apply(self.moving, {"moving.yaml": MOVING})
        for dsn in (self.examples, self.cron):
            self._install(dsn)
        (self._folder / "docs").mkdir()
        for name in ("a", "b", "c"):
            (self._folder / "docs" / f"{name}.md").write_text("Words and words.")
        self._start("worker", self.owners_examples, "worker", "--app", "scheduler.examples.documents")
        self._start("tick", self.tick, "tick")
        self._start("moving", self.moving, "tick")

    def run(self, plan: Plan) -> tuple[datetime, datetime, datetime]:
        """Run, break, come back. Returns when it began, when the server was stopped, and when it was back."""
        with connect(self._cluster.dsn()) as clock:
            began = database_now(clock)
            self._move_to_pg_cron()
            if plan.outage:
                self._wait_until(clock, began + plan.running + plan.stop - plan.outage - SPARE)
                self._end_the_hosts(clock, began)
            self._wait_until(clock, began + plan.running)
            if not plan.outage:
                self._end_the_hosts(clock, began)
            self._wait_for_a_quiet_moment(clock, began, self.examples)
            stopped = database_now(clock)
        self._stop("worker", signal.SIGTERM)
        self._cluster.stop()
        with held(self._cluster.port):
            wait_calmly(lambda: is_over(stopped + plan.stop), 300, "the end of the outage")
            back = datetime.now(stopped.tzinfo)
        self._cluster.restart()
        self._start("worker", self.owners_examples, "worker", "--app", "scheduler.examples.documents")
        self._switch_jobs("cron", on=True)
        return began, stopped, back

    def finish(self) -> None:
        """Wait for the first beat after the outage, let the ticker find the same dates, and the jobs end."""
        with connect(self.cron) as cron, connect(self.tick) as tick, connect(self.examples) as examples:
            boundary = next_minute(database_now(cron))
            wait_calmly(lambda: has_decided(cron, boundary) and has_decided(examples, boundary), 90, "the next beat")
            self._start("tick", self.tick, "tick")
            wait_calmly(lambda: has_decided(tick, boundary), 30, "the ticker to decide")
            wait_calmly(lambda: unfinished(examples) == 0, 60, "the example jobs to end")
        self._move_back_to_the_ticker()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def _grant(self) -> None:
        """A role that has the documented grants and no others."""
        places = ((self._cluster.dsn(), ("create role app login", *GRANTS_THERE)), (self.owners_examples, GRANTS_HERE))
        for dsn, statements in places:
            with connect(dsn) as connection:
                for statement in statements:
                    connection.execute(statement.encode())

    def _apply(self, dsn: str, files: dict[str, str]) -> None:
        folder = self._folder / f"files-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        ended = sched("apply", str(folder), "--dsn", dsn)
        assert ended.code == 0, ended.err

    def _install(self, dsn: str) -> None:
        ended = sched("install-pg-cron", "--dsn", dsn)
        assert ended.code == 0, ended.err

    def _start(self, name: str, dsn: str, *arguments: str) -> None:
        path = f"{self._cluster.binaries.bin_dir}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {"SCHED_DSN": dsn, "PATH": path}
        self._processes[name] = start_sched(*arguments, environment=environment, cwd=self._folder)

    def _stop(self, name: str, number: signal.Signals) -> None:
        process = self._processes.pop(name)
        assert process.poll() is None, process.communicate()
        process.send_signal(number)
        process.communicate(timeout=60)

    def _switch_jobs(self, database: str, *, on: bool) -> None:
        with connect(self._cluster.dsn()) as connection:
            connection.execute(
                "select cron.alter_job(jobid, active := %s) from cron.job where database = %s", (on, database)
            )

    def _move_to_pg_cron(self) -> None:
        """Both hosts until pg_cron has made a beat, then pg_cron alone."""
        with connect(self.moving) as db, connect(self._cluster.dsn()) as there:
            wait_calmly(lambda: decisions(db, "tick"), 30, "the ticker to decide")
            self._install(self.moving)
            beats = (
                "select true from cron.job_run_details"
                " where database = 'moving' and command like 'call %' and status = 'succeeded'"
            )
            wait_calmly(lambda: there.execute(beats).fetchone(), 90, "a beat beside the ticker")
        self._stop("moving", signal.SIGKILL)

    def _move_back_to_the_ticker(self) -> None:
        ended = sched("install-pg-cron", "--uninstall", "--dsn", self.moving)
        assert ended.code == 0, ended.err
        with connect(self.moving) as db:
            before = decisions(db, "tick")
            self._start("moving", self.moving, "tick")
            wait_calmly(lambda: decisions(db, "tick") > before + 1, 60, "the ticker to decide again")
        self._stop("moving", signal.SIGTERM)

    def _end_the_hosts(self, clock: Connection, began: datetime) -> None:
        self._wait_for_a_quiet_moment(clock, began, self.cron, self.tick)
        self._stop("tick", signal.SIGKILL)
        self._switch_jobs("cron", on=False)

    def _wait_until(self, clock: Connection, moment: datetime) -> None:
        clock.execute("select pg_sleep_until(%s)", (moment,))

    def _wait_for_a_quiet_moment(self, clock: Connection, began: datetime, *dsns: str) -> None:
        """Between two beats, when these have decided what is due, at least one date after ``began``."""
        with contextlib.ExitStack() as stack:
            databases = [stack.enter_context(connect(dsn)) for dsn in dsns]

            def is_quiet() -> bool:
                now = database_now(clock)
                newest = now.replace(second=0, microsecond=0)
                return newest > began and 2 <= now.second <= 52 and all(has_decided(db, newest) for db in databases)

            wait_calmly(is_quiet, 120, "a moment between two beats")


def wait_calmly(condition: Callable[[], object], timeout: float, what: str) -> None:
    """``wait_for`` that looks five times a second: these waits last minutes, and other tests want the processors."""

    def look() -> bool:
        is_met = bool(condition())
        if not is_met:
            time.sleep(0.2)
        return is_met

    wait_for(look, timeout, what)


@contextlib.contextmanager
def held(port: int) -> Iterator[None]:
    """Keep a port of a stopped server from being given to somebody else; who connects is refused all the same."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        yield


def is_over(until: datetime) -> bool:
    """Whether it is ``until`` or later, and half a minute before a beat: pg_cron has to be up by then."""
    now = datetime.now(until.tzinfo)
    return now >= until and 31 <= now.second <= 50


def example_definitions() -> dict[str, str]:
    """The files of ``schedules/`` with every schedule each minute, and a grace that a stop of two minutes exceeds."""
    texts = {file.name: file.read_text() for file in sorted((REPOSITORY / "schedules").glob("*.yaml"))}
    assert texts
    return {name: _each_minute(text) for name, text in texts.items()}


def _each_minute(text: str) -> str:
    text = re.sub(r'cron: ".*"', 'cron: "* * * * *"', text).replace("{local_date}", "{logical_date}")
    text = re.sub(r"    start: .*\n", "", text)
    text = re.sub(r"catchup: {policy: (\w+)", r"catchup: {policy: \1, grace: 61s", text)
    return re.sub(r"(    overlap: skip\n)(?!    catchup)", r"\1    catchup: {grace: 61s}\n", text)


def examples_had_every_date(db: Connection, began: datetime, until: datetime) -> None:
    """While pg_cron ran undisturbed each minute of each schedule became one job, which succeeded."""
    schedules = [row[0] for row in db.execute("select name from sched.schedules order by name").fetchall()]
    assert len(schedules) >= 3
    expected = [(name, minute) for name in schedules for minute in minutes(began, until)]
    found = db.execute(
        "select s.name, o.logical_date from sched.occurrences o join sched.schedules s on s.id = o.schedule_id"
        " join sched.jobs j on j.id = o.job_id"
        " where o.state = 'enqueued' and j.status = 'succeeded' and o.logical_date > %s and o.logical_date <= %s"
        " order by s.name, o.logical_date",
        (began, until),
    ).fetchall()
    assert found == expected


def missed_examples_were_settled_by_policy(db: Connection, stopped: datetime, back: datetime) -> None:
    """Each date of the stop has the outcome that its lateness, its policies and its neighbours ask for."""
    rows = db.execute(
        "select s.name, o.logical_date, o.state, o.reason, o.decided_at - o.due_at > r.grace, r.catchup, r.overlap"
        " from sched.occurrences o join sched.schedules s on s.id = o.schedule_id"
        " join sched.schedule_revisions r on r.schedule_id = o.schedule_id and r.revision = o.revision"
        " where o.logical_date > %s and o.logical_date <= %s order by s.name, o.logical_date",
        (stopped, back),
    ).fetchall()
    names = {row[0] for row in rows}
    assert Counter(row[0] for row in rows) == dict.fromkeys(names, len(minutes(stopped, back)))
    late = [row for row in rows if row[4]]
    assert late
    reasons = {"latest": ("missed", "coalesced"), "none": ("missed", "late"), "all": ("enqueued", None)}
    for row in late:
        assert row[2:4] == reasons[row[5]], row
    seen: set[str] = set()
    for row in rows:
        if not row[4]:
            is_second = row[6] == "skip" and row[0] in seen
            assert row[2:4] == (("skipped", "overlap") if is_second else ("enqueued", None)), row
            seen.add(row[0])


def both_hosts_decided_the_same(campaign: Campaign) -> None:
    """Equal in schedule, logical date, state, reason and having a job, from the first date that both had on."""
    query = (
        "select s.name, o.logical_date, o.state, o.reason, o.job_id is not null from sched.occurrences o"
        " join sched.schedules s on s.id = o.schedule_id"
        " where o.logical_date > %s and o.logical_date <= %s order by s.name, o.logical_date"
    )
    with connect(campaign.cron) as cron, connect(campaign.tick) as tick:
        applied = [db.execute("select max(applied_at) from sched.schedules").fetchone() for db in (cron, tick)]
        began = max(row[0] for row in applied if row)
        last = "select max(logical_date) from sched.occurrences where decided_at is not null"
        until = min(row[0] for row in (cron.execute(last).fetchone(), tick.execute(last).fetchone()) if row)
        by_cron, by_tick = (db.execute(query, (began, until)).fetchall() for db in (cron, tick))
        hosts = [
            {row[0].split(":")[0] for row in db.execute("select distinct decided_by from sched.occurrences"
                                                        " where decided_by is not null").fetchall()}
            for db in (cron, tick)
        ]  # fmt: skip
    print(f"\nboth hosts, {began:%H:%M:%S} to {until:%H:%M:%S}: {len(by_cron)} dates; by outcome and reason:")
    for (state, reason), count in sorted(Counter((row[2], row[3] or "") for row in by_cron).items()):
        print(f"  {count:4} {state} {reason}")
    assert hosts == [{"pg_cron"}, {"tick"}]
    assert by_cron == by_tick
    assert {row[3] for row in by_cron} == {None, "coalesced", "late"}


def moving_lost_and_doubled_nothing(campaign: Campaign) -> None:
    """From the first decided date to the last one every 10 seconds have one job, by three hosts in turn."""
    with connect(campaign.moving) as db:
        dates = [row[0] for row in db.execute(
            "select o.logical_date from sched.occurrences o join sched.jobs j on j.id = o.job_id"
            " where o.state = 'enqueued' order by 1").fetchall()]  # fmt: skip
        undecided = db.execute(
            "select count(*) from sched.occurrences where decided_at is null and due_at <= %s", (dates[-1],)
        )
        assert undecided.fetchone() == (0,)
        by = db.execute("select split_part(decided_by, ':', 1), count(*) from sched.occurrences"
                        " where decided_at is not null group by 1 order by 1").fetchall()  # fmt: skip
    print(f"moving: {len(dates)} dates of 10 s without gap or double, decided by {dict(by)}")
    assert dates == [dates[0] + n * TEN_SECONDS for n in range(len(dates))]


def no_run_failed(cluster: Cluster) -> None:
    """pg_cron ran each of its jobs without an error, as both roles."""
    with connect(cluster.dsn()) as there:
        runs = there.execute(
            "select username, left(command, 18), status, count(*) from cron.job_run_details"
            " group by 1, 2, 3 order by 1, 2, 3"
        ).fetchall()
    for run in runs:
        print("pg_cron run:", *run)
    assert {run[2] for run in runs} == {"succeeded"}
    assert {run[:2] for run in runs} >= {
        (role, command) for role in (ROLE, "postgres") for command in ("call sched.beat()", "select sched.reap(")
    }


def report(db: Connection, began: datetime, stopped: datetime, back: datetime) -> None:
    """The figures, for those who run it by hand."""
    lags = [
        row[0].total_seconds()
        for row in db.execute(
            "select decided_at - due_at from sched.occurrences"
            " where state = 'enqueued' and due_at > %s and due_at <= %s",
            (began, stopped),
        ).fetchall()
    ]
    fates = Counter(
        db.execute(
            "select state, coalesce(reason, '') from sched.occurrences where logical_date > %s and logical_date <= %s",
            (stopped, back),
        ).fetchall()
    )
    print(f"\nexamples under pg_cron for {stopped - began}: {len(lags)} dates, all succeeded; decided after")
    print(f"  {statistics.median(lags) * 1000:.0f} ms in the middle, {max(lags) * 1000:.0f} ms at most")
    print(f"server stopped for {back - stopped}; its dates: {dict(fates)}")


def minutes(after: datetime, until: datetime) -> list[datetime]:
    """The full minutes in ``(after, until]``."""
    first = next_minute(after)
    return [first + n * MINUTE for n in range(int((until - first) / MINUTE) + 1)] if until >= first else []


def next_minute(after: datetime) -> datetime:
    return after.replace(second=0, microsecond=0) + MINUTE


def has_decided(db: Connection, moment: datetime) -> bool:
    """Whether a date at or after ``moment`` is decided, and none before it is open."""
    row = db.execute(
        "select count(*) filter (where decided_at is not null and logical_date >= %(at)s) > 0"
        " and count(*) filter (where decided_at is null and due_at <= %(at)s) = 0 from sched.occurrences",
        {"at": moment},
    ).fetchone()
    assert row is not None
    return bool(row[0])


def decisions(db: Connection, host: str) -> int:
    row = db.execute(
        "select count(*) from sched.occurrences where split_part(decided_by, ':', 1) = %s", (host,)
    ).fetchone()
    assert row is not None
    return int(row[0])


def unfinished(db: Connection) -> int:
    row = db.execute("select count(*) from sched.jobs where completed_at is null").fetchone()
    assert row is not None
    return int(row[0])

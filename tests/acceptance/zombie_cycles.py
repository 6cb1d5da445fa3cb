"""Cycles of workers that come back from the dead, and the search for anything that a lost lease has changed.

In each cycle a real worker process stops itself by SIGSTOP at a named point (zombie_app.py). It is continued when its
lease was taken over: beside the next attempt while that one runs, or after the job is done. Several cycles go on at
once, among jobs that have nothing to do with them and are stopped wherever they happen to be.

A stale write is a row of jobs, attempts or job_results that a beat or a settlement wrote without presenting the token
of the very attempt, or that it sent after the lease had run out. Triggers keep every change together with what the
writing statement presented; all of them are judged at the end, and all invariants with them.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scheduler.storage.database import Connection
from tests.support.database import connect
from tests.support.fleet import Fleet, fleet
from tests.support.invariants import violations
from tests.support.wait import wait_for

POINTS = ("running", "after the side effect", "in heartbeat", "before settle")
ENDINGS = ("succeeds", "fails", "discards", "holds", "commits")
RETURNS = ("beside the next attempt", "after the job is done")
HANDLERS = ("zombie.plain", "zombie.async")
LEASE = "1s"
BYSTANDERS = 3
POLL_SECONDS = 0.05
PATIENCE = 60.0

TABLES = """
alter table sched.jobs alter column retry_base set default '0.1 seconds', alter column retry_max set default '1 second';

create table public.stops (
  cycle integer primary key, point text, pid integer, job_id bigint, token uuid unique,
  at timestamptz default clock_timestamp());
create table public.answers (token uuid, statement text, outcome text, at timestamptz default clock_timestamp());
create table public.gates (cycle integer primary key);
create table public.effects (job_id bigint, attempt integer);

create table public.changes (
  relation text, job_id bigint, token uuid, expires_at timestamptz, statement text, tokens uuid[],
  sent_at timestamptz default statement_timestamp());

create function public.note_change() returns trigger language plpgsql as $$
declare
  v_presents text[] := string_to_array(current_setting('zombie.presents', true), ' ');
  v_row record := case when tg_op = 'INSERT' then new else old end;
  v_change public.changes;
begin
  v_change.relation := tg_table_name;
  if tg_table_name = 'jobs' then
    v_change.job_id := v_row.id;
    v_change.token := v_row.lease_token;
    v_change.expires_at := v_row.lease_expires_at;
  elsif tg_table_name = 'attempts' then
    v_change.job_id := v_row.job_id;
    v_change.token := v_row.lease_token;
  else
    v_change.job_id := v_row.produced_by;
    select a.lease_token into v_change.token
    from sched.attempts a where a.job_id = v_row.produced_by and a.number = v_row.attempt;
  end if;
  insert into public.changes (relation, job_id, token, expires_at, statement, tokens)
  values (v_change.relation, v_change.job_id, v_change.token, v_change.expires_at,
          v_presents[1], v_presents[2]::uuid[]);
  return null;
end
$$;
create trigger note_change after update or delete on sched.jobs
  for each row execute function public.note_change();
create trigger note_change after insert or update or delete on sched.attempts
  for each row execute function public.note_change();
create trigger note_change after insert or update or delete on sched.job_results
  for each row execute function public.note_change();

create view public.stale_writes as
select c.* from public.changes c
where c.statement in ('jobs_complete', 'jobs_fail', 'jobs_hand_back', 'jobs_heartbeat')
  and not coalesce(c.token = any (c.tokens) and (c.relation <> 'jobs' or c.expires_at > c.sent_at), false);
"""

# What must not be found at the end, each as a count.
FAULTS = {
    "changes by nobody knows whom": "select count(*) from public.changes where statement is null",
    "jobs that did not succeed": "select count(*) from sched.jobs where status <> 'succeeded'",
    "results of another attempt than the one that succeeded": """
        select count(*)
        from sched.jobs j
        left join sched.attempts a on a.job_id = j.id and a.outcome = 'succeeded'
        left join sched.job_results r on r.key = j.idempotency_key
        where (j.result ->> 'attempt')::integer is distinct from a.number
          or r.attempt is distinct from a.number or r.result is distinct from j.result
    """,
    "stopped attempts that are not recorded as lost": """
        select count(*) from public.stops s
        where not exists (select from sched.attempts a where a.lease_token = s.token and a.outcome = 'lost')
    """,
    "answers other than lost to a token that came back": """
        select count(*) from public.answers a
        join public.stops s using (token)
        join sched.attempts t on t.lease_token = s.token
        where a.at > t.ended_at and a.outcome <> 'lost'
    """,
    "tokens that came back and were never presented": """
        select count(*) from public.stops s
        where not exists (
          select from public.answers a
          where a.token = s.token and a.at > s.at
            and a.statement in ('jobs_complete', 'jobs_fail'))
          or s.point = 'in heartbeat' and not exists (
            select from public.answers a where a.token = s.token and a.at > s.at and a.statement = 'jobs_heartbeat')
    """,
    "effects in a transaction that were not made exactly once": """
        select count(*) from sched.jobs j
        where j.payload ->> 'ending' = 'commits'
          and (select array_agg(e.attempt) from public.effects e where e.job_id = j.id)
            is distinct from array[(j.result ->> 'attempt')::integer]
    """,
}


@dataclass(frozen=True, slots=True)
class Cycle:
    """One worker that stops at ``point``, and how its attempt ends once it goes on."""

    cycle: int
    point: str
    ending: str
    returns: str
    handler: str


@dataclass(slots=True)
class Report:
    """What happened, and every way in which the end was not what it must be."""

    seed: int
    cycles: list[Cycle]
    reached: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    bystanders_lost: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    stale_writes: int = 0
    faults: dict[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"seed {self.seed}: {len(self.cycles)} cycles of a worker stopped for longer than its lease of {LEASE}"
        for point in POINTS:
            yield f"  {point:<24} {self.reached[point]:>4}"
        said = ", ".join(f"{count} {what}" for what, count in sorted(self.answers.items()))
        yield f"answers to tokens that came back: {said}; {self.bystanders_lost} leases of other jobs lost meanwhile"
        yield f"{self.stale_writes} stale writes among {self.changes} changes, other faults: {self.faults or 'none'}"


def choose(seed: int, count: int) -> list[Cycle]:
    """Cycles of which every point gets equally many; the rest is left to chance."""
    chance = random.Random(seed)
    points = [POINTS[number % len(POINTS)] for number in range(count)]
    chance.shuffle(points)
    return [
        Cycle(number, point, chance.choice(ENDINGS), chance.choice(RETURNS), chance.choice(HANDLERS))
        for number, point in enumerate(points)
    ]


def run_cycles(
    dsn: str,
    folder: Path,
    cycles: list[Cycle],
    seed: int,
    workers: int = 8,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Run these cycles on an empty migrated database, half as many at once as there are workers."""
    with connect(dsn) as db:
        db.execute(TABLES)
        with fleet(dsn, folder) as processes:
            names = [f"worker-{number}" for number in range(workers)]
            for name in names:
                processes.start(
                    name, "worker", "--app", "tests.acceptance.zombie_app", "--lease", LEASE, "--concurrency", "4"
                )
            known = "select count(*) from sched.workers"
            wait_for(lambda: _count(db, known) == workers, PATIENCE, "the workers to start", every=POLL_SECONDS)
            pids = {processes.pid(name) for name in names}
            # Half of the processes are never stopped at once: they take over, and their reapers beat.
            with ThreadPoolExecutor(workers // 2) as pool:
                for cycle in pool.map(lambda cycle: _run(dsn, cycle, pids), cycles):
                    say(f"{cycle.cycle:>4}  {cycle.point:<22} {cycle.ending:<9} {cycle.returns}")
            _wait_for_quiet(db, processes, names)
        return _judge(db, cycles, seed)


def _run(dsn: str, cycle: Cycle, pids: set[int]) -> Cycle:
    """One worker stops, loses its lease, comes back and is answered."""
    with connect(dsn) as db:
        for number in range(BYSTANDERS):
            seconds = random.Random(f"{cycle.cycle} {number}").uniform(0, 0.8)
            _add(dsn, "zombie.bystander", {"seconds": seconds})
        job_id = _add(dsn, cycle.handler, asdict(cycle))

        def row(query: str, *parameters: Any) -> Any:
            return db.execute(query.encode(), parameters).fetchone()

        def wait(condition: Callable[[], Any], what: str) -> Any:
            return wait_for(condition, PATIENCE, f"{what} in {cycle}", every=POLL_SECONDS)

        pid, token = wait(lambda: row("select pid, token from public.stops where cycle = %s", cycle.cycle), "a stop")
        assert pid in pids
        wait(lambda: _is_stopped(pid), "the process to stand still")
        lost = "select 1 from sched.attempts where lease_token = %s and outcome = 'lost'"
        wait(lambda: row(lost, token), "the lease to be taken over")
        state = "running" if cycle.returns == "beside the next attempt" else "succeeded"
        there = "select 1 from sched.jobs where id = %s and status = %s and lease_token is distinct from %s"
        wait(lambda: row(there, job_id, state, token), f"the job to be {state}")
        assert _is_stopped(pid)
        os.kill(pid, signal.SIGCONT)
        settled = "select 1 from public.answers where token = %s and statement in ('jobs_complete', 'jobs_fail')"
        wait(lambda: row(settled, token), "the zombie to be answered")
        db.execute("insert into public.gates values (%s)", (cycle.cycle,))
        wait(
            lambda: row("select 1 from sched.jobs where id = %s and status = 'succeeded'", job_id), "the job to succeed"
        )
    return cycle


def _add(dsn: str, job_type: str, payload: dict[str, Any]) -> int:
    """A job with a key that outlives many lost leases, each available again at once."""
    with connect(dsn) as db:
        row = db.execute(
            """
            select id from sched.enqueue(%s, %s::jsonb, p_max_attempts => 1000,
                                         p_idempotency_key => gen_random_uuid()::text)
            """,
            (job_type, json.dumps(payload)),
        ).fetchone()
    assert row is not None
    return int(row[0])


def _is_stopped(pid: int) -> bool:
    """Whether every thread of the process stands still."""
    states = [_state(task / "stat") for task in Path(f"/proc/{pid}/task").iterdir()]
    return all(state == "T" for state in states)


def _state(stat: Path) -> str:
    return stat.read_text().rpartition(")")[2].split()[0]


def _wait_for_quiet(db: Connection, processes: Fleet, names: list[str]) -> None:
    unfinished = "select count(*) from sched.jobs where status <> 'succeeded'"
    wait_for(lambda: not _count(db, unfinished), PATIENCE, "all jobs to succeed", every=POLL_SECONDS)
    processes.stop(*names)


def _judge(db: Connection, cycles: list[Cycle], seed: int) -> Report:
    report = Report(seed=seed, cycles=cycles)
    report.reached.update(row[0] for row in db.execute("select point from public.stops").fetchall())
    report.changes = _count(db, "select count(*) from public.changes")
    report.stale_writes = _count(db, "select count(*) from public.stale_writes")
    report.bystanders_lost = _count(
        db,
        "select count(*) from sched.attempts a where a.outcome = 'lost'"
        " and not exists (select from public.stops s where s.token = a.lease_token)",
    )
    report.answers = dict(
        db.execute(
            "select a.statement || ' ' || a.outcome, count(*) from public.answers a join public.stops s using (token)"
            " where a.at > s.at group by 1"
        ).fetchall()
    )
    report.faults = {what: found for what, query in FAULTS.items() if (found := _count(db, query))} | violations(db)
    return report


def _count(db: Connection, query: str) -> int:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])

"""The invariants of the design, each as a query that finds what violates it. Tests call ``violations`` at their end."""

from __future__ import annotations

from scheduler.storage.database import Connection

INVARIANTS = {
    "at most one job per date and generation": """
        select schedule_id, logical_date, generation from sched.jobs
        where logical_date is not null group by 1, 2, 3 having count(*) > 1
    """,
    "a running job has owner, lease and token": """
        select id from sched.jobs
        where status = 'running' and (lease_owner is null or lease_token is null or lease_expires_at is null)
    """,
    "admitted jobs of a limit never exceed its slots": """
        select l.key from sched.limits l
        where l.slots < (select count(*) from sched.jobs j where j.limit_key = l.key and j.holds_limit)
    """,
    "admitted jobs of an overlap key never exceed its slot": """
        select l.key from sched.limits l
        where l.slots < (select count(*) from sched.jobs j where j.overlap_key = l.key and j.holds_overlap)
    """,
    "a keyed job that is pending or running has its slots": """
        select id from sched.jobs
        where status in ('pending', 'running')
          and ((overlap_key is not null and not holds_overlap) or (limit_key is not null and not holds_limit))
    """,
    "the attempt count is the number of attempt rows, one more while running": """
        select j.id from sched.jobs j
        where j.attempt_count - (j.status = 'running')::integer
          <> (select count(*) from sched.attempts a where a.job_id = j.id)
    """,
    "final states have an end and no lease": """
        select id from sched.jobs
        where status in ('succeeded', 'dead', 'cancelled') and (completed_at is null or lease_token is not null)
    """,
    "an enqueued date has its job": """
        select o.schedule_id, o.logical_date from sched.occurrences o
        where o.state = 'enqueued' and not exists (select from sched.jobs j where j.id = o.job_id)
    """,
    "a job of a date is in the ledger": """
        select j.id from sched.jobs j
        where j.logical_date is not null and not exists (
          select from sched.occurrences o
          where o.schedule_id = j.schedule_id and o.logical_date = j.logical_date and o.state = 'enqueued')
    """,
    "no foreign id without its row": """
        select 'job ' || j.id from sched.jobs j
        where j.schedule_id is not null and not exists (select from sched.schedules s where s.id = j.schedule_id)
        union all
        select 'attempt of ' || a.job_id from sched.attempts a
        where not exists (select from sched.jobs j where j.id = a.job_id)
        union all
        select 'occurrence of ' || o.schedule_id from sched.occurrences o
        where not exists (select from sched.schedule_revisions r
                          where r.schedule_id = o.schedule_id and r.revision = o.revision)
    """,
}


def violations(connection: Connection) -> dict[str, int]:
    """How many rows violate each invariant; empty when all hold."""
    counts = {name: len(connection.execute(query).fetchall()) for name, query in INVARIANTS.items()}
    return {name: count for name, count in counts.items() if count}

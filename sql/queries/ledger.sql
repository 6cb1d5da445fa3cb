-- name: occurrence_find
-- One date of the ledger by its instant or by its wall, with by_wall that of its wall first. Index: occurrences_pkey.
select o.revision, o.logical_date, o.due_at, o.wall, o.fold, o.local_date, o.interval_start, o.generation, o.state,
       o.reason, o.decided_at, o.decided_by, o.job_id
from sched.occurrences o
where o.schedule_id = %(id)s::integer
  and o.logical_date >= %(logical_date)s::timestamptz - sched.largest_move_from(%(tzdata)s::text)
  and o.logical_date <= %(logical_date)s::timestamptz + sched.largest_move_from(%(tzdata)s::text)
  and (o.logical_date = %(logical_date)s::timestamptz
       or (o.wall = %(wall)s::timestamp and o.fold = %(fold)s::boolean and o.revision = %(revision)s::integer))
order by case when %(by_wall)s::boolean
              then o.wall is not distinct from %(wall)s::timestamp and o.fold = %(fold)s::boolean
                and o.revision = %(revision)s::integer
              else o.logical_date = %(logical_date)s::timestamptz end desc
limit 1;

-- name: occurrence_jobs
-- The jobs of one date, all generations. Index: jobs_occurrence.
select j.id, j.status, j.origin, j.generation, j.queue, j.attempt_count, j.max_attempts, j.created_at, j.available_at,
       j.started_at, j.completed_at, j.progress, j.progress_note, j.covers_from, j.waiting_for, j.last_error,
       j.idempotency_key, j.backfill_id, r.produced_by, r.created_at as result_at
from sched.jobs j
left join sched.job_results r on r.key = j.idempotency_key
where j.schedule_id = %(id)s::integer and j.logical_date = %(logical_date)s::timestamptz
order by j.generation;

-- name: occurrence_events
-- What was noted about one date and about its jobs, in order. Indexes: events_schedule, events_job.
select e.at, e.kind, e.job_id, e.actor, e.reason, e.details
from sched.events e
where (e.schedule_id = %(id)s::integer and e.logical_date = %(logical_date)s::timestamptz)
   or e.job_id = any (%(job_ids)s::bigint[])
order by e.at, e.id;

-- name: pauses_at
-- The pauses that hold an instant.
select p.from_at, p.until_at, p.keep, p.actor, p.reason
from sched.pauses p
where p.schedule_id = %(id)s::integer
  and p.from_at <= %(at)s::timestamptz and (p.until_at is null or %(at)s::timestamptz < p.until_at)
order by p.from_at;

-- name: prune_jobs
select sched.prune_jobs(%(status)s::text, %(before)s::timestamptz, %(limit)s::integer);

-- name: prune_results
select sched.prune_results(%(before)s::timestamptz, %(limit)s::integer);

-- name: prune_events
select sched.prune_events(%(before)s::timestamptz, %(limit)s::integer);

-- name: prune_ledger
select sched.prune_ledger(%(id)s::integer, %(before)s::timestamptz, %(limit)s::integer);

-- name: ledger_days
select s.id, sched.ledger_days(s.id) as days
from sched.schedules s
order by s.id;

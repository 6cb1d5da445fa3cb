-- name: status_summary
-- The state at a glance, from one snapshot. Takes no lock. Counts read the tables; the rest their partial indexes.
select clock_timestamp() as now,
       (select coalesce(jsonb_object_agg(c.status, c.jobs), '{}')
        from (select j.status, count(*) as jobs from sched.jobs j group by j.status) c) as jobs,
       (select coalesce(jsonb_object_agg(c.state, c.dates), '{}')
        from (select o.state, count(*) as dates from sched.occurrences o group by o.state) c) as occurrences,
       (select min(j.available_at) from sched.jobs j where j.status = 'pending') as ready_since,
       (select count(*) from sched.jobs j
        where j.status = 'running' and j.lease_expires_at <= clock_timestamp()) as expired_leases,
       (select min(o.due_at) from sched.occurrences o
        where o.state = 'planned' and o.due_at > clock_timestamp()) as next_due_at,
       (select count(*) from sched.occurrences o
        where o.state = 'planned' and o.due_at <= clock_timestamp()) as due,
       (select count(*) from sched.overdue) as overdue,
       (select count(*) from sched.health h where h.is_horizon_ended) as ended_horizons,
       (select min(h.horizon_end) from sched.health h) as horizon_end,
       (select count(*) from sched.schedules s where s.retired_at is null) as schedules,
       (select count(*) from sched.pauses p
        join sched.schedules s on s.id = p.schedule_id
        where p.until_at is null and s.retired_at is null) as paused_schedules,
       (select count(*) from sched.workers w
        where w.stopped_at is null and w.seen_at > clock_timestamp() - interval '1 minute') as workers,
       t.host, t.tzdata, t.last_pass_at, t.last_plan_at
from sched.state t;

-- name: status_jobs_list
-- Jobs by id, the newest first; null filters let everything pass. Index: jobs_pkey.
select j.id, j.status, j.job_type, j.schedule, j.logical_date, j.queue, j.priority, j.origin, j.attempt_count,
       j.max_attempts, j.created_at, j.available_at, j.started_at, j.completed_at, j.progress, j.progress_note,
       j.last_error
from sched.jobs j
where (%(status)s::text is null or j.status = %(status)s::text)
  and (%(schedule)s::text is null
       or j.schedule = %(schedule)s::text
       or j.schedule_id in (select s.id from sched.schedules s
                            where s.name = %(schedule)s::text or %(schedule)s::text = any (s.former_names)))
  and (%(queue)s::text is null or j.queue = %(queue)s::text)
order by j.id desc
limit %(limit)s::integer;

-- name: status_job
-- One job with everything people ask about it. Index: jobs_pkey.
select j.id, j.status, j.job_type, j.origin, j.schedule, j.logical_date, j.generation, j.interval_start,
       j.interval_end, j.covers_from, j.revision, j.queue, j.priority, j.attempt_count, j.max_attempts, j.created_at,
       j.available_at, j.started_at, j.completed_at, coalesce(w.name, j.lease_owner::text) as worker,
       j.lease_expires_at, j.heartbeat_at, j.progress, j.progress_note, j.cancel_requested_at, j.waiting_for,
       j.limit_key, j.backfill_id, j.replay_of, j.idempotency_key, j.timeout, j.payload, j.run, j.result, j.last_error
from sched.jobs j
left join sched.workers w on w.id = j.lease_owner
where j.id = %(id)s::bigint;

-- name: status_attempts
-- The spent tries at one job, in order. Index: attempts_pkey.
select a.number, a.outcome, coalesce(w.name, a.worker::text) as worker, a.started_at, a.ended_at, a.error, a.metadata
from sched.attempts a
left join sched.workers w on w.id = a.worker
where a.job_id = %(id)s::bigint
order by a.number;

-- name: status_events
-- What people and policies did to one job, in order. Index: events_job.
select e.at, e.kind, e.actor, e.reason, e.details
from sched.events e
where e.job_id = %(id)s::bigint
order by e.id;

-- name: status_schedules_list
-- Every schedule with its newest definition, its open pause, and what is next, by name; null lets every name pass.
-- fires_again is false when the planner found no date beyond those that are planned.
-- The latest decision is read from the newest end of occurrences_pkey.
select s.id, s.name, s.owner, s.revision, s.retired_at, r.file, r.job_type, r.queue, r.definition,
       p.from_at as paused_at, p.keep as is_pause_keeping, p.actor as paused_by, p.reason as pause_reason,
       (select min(o.due_at) from sched.occurrences o
        where o.schedule_id = s.id and o.state = 'planned' and o.logical_date > s.ledger_from) as next_due_at,
       s.planned_until < '9999-01-01' as fires_again,
       d.logical_date as last_logical_date, d.state as last_state, d.reason as last_reason
from sched.schedules s
join sched.schedule_revisions r on r.schedule_id = s.id and r.revision = s.revision
left join sched.pauses p on p.schedule_id = s.id and p.until_at is null
left join lateral (
  select o.logical_date, o.state, o.reason
  from sched.occurrences o
  where o.schedule_id = s.id and o.state <> 'planned'
  order by o.logical_date desc
  limit 1
) d on true
where %(name)s::text is null or s.name = %(name)s::text or %(name)s::text = any (s.former_names)
order by s.name;

-- name: status_unfinished
-- How many jobs of these schedules are not finished; schedules without any are left out. Index: jobs_unfinished.
select s.name, count(*) as jobs
from sched.schedules s
join sched.jobs j on j.schedule_id = s.id and j.status in ('scheduled', 'waiting', 'pending', 'running')
where s.name = any (%(names)s::text[])
group by s.name
order by s.name;

-- name: operate_act
-- Retry, hold, release, cancel or replay jobs; one row per job, in the order given: see sched.steer.
select s.id, s.outcome, s.replay_id
from sched.steer(%(action)s::text, %(ids)s::bigint[], %(actor)s::text, %(reason)s::text) s;

-- name: operate_unknown
-- Those of these ids that no job has. Index: jobs_pkey.
select e.id
from unnest(%(ids)s::bigint[]) as e (id)
where not exists (select from sched.jobs j where j.id = e.id)
order by e.id;

-- name: operate_matching
-- Jobs in these states that pass the filter, in id order behind after; null filters let everything pass. Indexes:
-- jobs_attention for dead and held ones, else jobs_pkey.
select j.id, j.status, j.job_type
from sched.jobs j
where j.id > %(after)s::bigint
  and j.status = any (%(statuses)s::text[])
  and (%(queue)s::text is null or j.queue = %(queue)s::text)
  and (%(job_type)s::text is null or j.job_type = %(job_type)s::text)
  and (%(schedule_id)s::integer is null or j.schedule_id = %(schedule_id)s::integer)
  and (%(since)s::timestamptz is null or j.completed_at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or j.completed_at < %(until)s::timestamptz)
  and (%(error)s::text is null or position(%(error)s::text in j.last_error) > 0)
order by j.id
limit %(limit)s::integer;

-- name: operate_pause
-- See sched.pause.
select sched.pause(%(schedule)s::text, %(keep)s::boolean, %(actor)s::text, %(reason)s::text);

-- name: operate_resume
-- See sched.resume.
select sched.resume(%(schedule)s::text, %(actor)s::text, %(reason)s::text);

-- name: operate_trigger
-- A job of this schedule now: see sched.trigger.
select t.outcome, t.job_id
from sched.trigger(%(schedule)s::text, %(actor)s::text, %(reason)s::text) t;

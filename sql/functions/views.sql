-- Views for people: the questions of an operator in plain SQL.

-- What could be claimed right now, the longest wait first.
create or replace view sched.ready as
select j.id, j.job_type, j.queue, j.priority, j.schedule, j.logical_date, j.available_at,
       clock_timestamp() - j.available_at as wait
from sched.jobs j
where j.status = 'pending'
order by j.available_at;

-- Who runs what, how long the lease still is, how long ago it beat, and how far its handler says it is.
create or replace view sched.running as
select j.id, j.job_type, j.queue, j.schedule, j.logical_date, j.attempt_count as attempt,
       coalesce(w.name, j.lease_owner::text) as worker, j.started_at,
       j.lease_expires_at - clock_timestamp() as lease_left,
       clock_timestamp() - j.heartbeat_at as since_beat, j.progress, j.progress_note
from sched.jobs j
left join sched.workers w on w.id = j.lease_owner
where j.status = 'running'
order by j.started_at;

-- What failed and will be tried again.
create or replace view sched.retrying as
select j.id, j.job_type, j.queue, j.schedule, j.logical_date, j.attempt_count, j.max_attempts, j.available_at,
       j.last_error
from sched.jobs j
where j.status = 'scheduled' and j.attempt_count > 0
order by j.available_at;

-- What is out of attempts or refused, and waits for a person.
create or replace view sched.dead as
select j.id, j.job_type, j.queue, j.schedule, j.logical_date, j.attempt_count, j.completed_at, j.last_error
from sched.jobs j
where j.status = 'dead'
order by j.completed_at desc;

-- Dates that are not done by their finish_by, counted from due_at; also those that no job row exists for. Reads planned
-- rows, unfinished jobs and dead ones by their partial indexes.
create or replace view sched.overdue as
select s.name as schedule, o.logical_date, o.due_at, o.due_at + r.finish_by as finish_by_at,
       clock_timestamp() - (o.due_at + r.finish_by) as overdue_for, o.state, null::bigint as job_id,
       null::text as job_status, o.schedule_id
from sched.occurrences o
join sched.schedules s on s.id = o.schedule_id
join sched.schedule_revisions r on r.schedule_id = o.schedule_id and r.revision = o.revision
where o.state = 'planned' and o.due_at <= clock_timestamp() and o.due_at + r.finish_by < clock_timestamp()
union all
select s.name, o.logical_date, o.due_at, o.due_at + r.finish_by, clock_timestamp() - (o.due_at + r.finish_by),
       o.state, j.id, j.status, o.schedule_id
from sched.jobs j
join sched.occurrences o
  on o.schedule_id = j.schedule_id and o.logical_date = j.logical_date and o.generation = j.generation
join sched.schedules s on s.id = o.schedule_id
join sched.schedule_revisions r on r.schedule_id = o.schedule_id and r.revision = o.revision
where j.status in ('scheduled', 'waiting', 'pending', 'running', 'held', 'dead')
  and j.schedule_id is not null
  and j.origin <> 'backfill'
  and o.due_at + r.finish_by < clock_timestamp();

-- One row per schedule in force: whether its dates are decided on time and how far they are planned, beside what is
-- true of the whole database (when passes last fired and planned, by whom).
create or replace view sched.health as
select s.name as schedule,
       (select min(o.due_at) from sched.occurrences o
        where o.schedule_id = s.id and o.state = 'planned' and o.due_at <= clock_timestamp()) as oldest_due_undecided,
       (select max(o.decided_at - o.due_at) from (
          select l.decided_at, l.due_at from sched.occurrences l
          where l.schedule_id = s.id and l.state = 'enqueued' and l.reason is null
          order by l.logical_date desc limit 10) o) as recent_lateness,
       nullif(s.planned_until, '9999-01-01 00:00:00+00') as horizon_end,
       s.planned_until < clock_timestamp() as is_horizon_ended,
       exists (select from sched.pauses p where p.schedule_id = s.id and p.until_at is null) as is_paused,
       t.host, t.tzdata, t.last_pass_at, t.last_plan_at, t.clock_apart
from sched.schedules s
cross join sched.state t
where s.retired_at is null
order by s.name;

-- Views for people: the questions of an operator in plain SQL.

-- What could be claimed right now, the longest wait first.
create or replace view sched.ready as
select j.id, j.job_type, j.queue, j.priority, j.schedule, j.logical_date, j.available_at,
       clock_timestamp() - j.available_at as wait
from sched.jobs j
where j.status = 'pending'
order by j.available_at;

-- Who runs what, how long the lease still is and how long ago it beat.
create or replace view sched.running as
select j.id, j.job_type, j.queue, j.schedule, j.logical_date, j.attempt_count as attempt,
       coalesce(w.name, j.lease_owner::text) as worker, j.started_at,
       j.lease_expires_at - clock_timestamp() as lease_left,
       clock_timestamp() - j.heartbeat_at as since_beat
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

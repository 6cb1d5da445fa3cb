-- Statements that only the lab has (scheduler/lab/statements.py). Those of the product are in sql/.

-- name: lab_lock
-- Held by the session of a lab until it ends.
select pg_try_advisory_lock(hashtextextended('sched_lab', 0));

-- name: session_pid
select pg_backend_pid();

-- name: lab_is_ours
-- Whether the schema carries the mark of lab_mark; no row when there is none.
select coalesce(obj_description(n.oid, 'pg_namespace') = 'made by sched bench lab, which drops it at its end', false)
from pg_namespace n
where n.nspname = 'sched_lab';

-- name: lab_mark
-- The mark, and locks of its own, so that its reaper and a product in the same database do not meet.
comment on schema sched_lab is 'made by sched bench lab, which drops it at its end';
create or replace function sched_lab.pass_lock_key() returns bigint
language sql immutable parallel safe as $$ select hashtextextended('sched_lab pass', 0) $$;

-- name: lab_tables
-- bare_jobs: what the alternatives claim from, with nothing of ours to slow them. bystander: a table of one row
-- that somebody else updates all the time.
create table sched_lab.bare_jobs (
  id bigint generated always as identity primary key,
  queue text not null,
  status text not null default 'pending',
  attempt_count integer not null default 0
);
create index bare_jobs_claim on sched_lab.bare_jobs (queue, id) where status = 'pending';
create table sched_lab.bystander (changes bigint not null, filling text not null);

-- name: lab_drop
drop schema sched_lab cascade;

-- name: conditions
-- What the figures depend on, as the server says.
select current_setting('server_version'), clock_timestamp(),
       jsonb_object_agg(s.name, current_setting(s.name))
from pg_settings s
where s.name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'work_mem', 'jit',
                 'random_page_cost', 'autovacuum');

-- name: bare_fill
insert into sched_lab.bare_jobs (queue) select %(queue)s::text from generate_series(1, %(jobs)s::integer);

-- name: bare_next
select j.id, j.attempt_count
from sched_lab.bare_jobs j
where j.queue = %(queue)s::text and j.status = 'pending'
order by j.id
limit 1;

-- name: bare_next_blocking
select j.id, j.attempt_count
from sched_lab.bare_jobs j
where j.queue = %(queue)s::text and j.status = 'pending'
order by j.id
limit 1
for update;

-- name: bare_next_skipping
select j.id, j.attempt_count
from sched_lab.bare_jobs j
where j.queue = %(queue)s::text and j.status = 'pending'
order by j.id
limit 1
for update skip locked;

-- name: bare_start
-- As people write it: the new count is computed from the row that was read.
update sched_lab.bare_jobs set status = 'running', attempt_count = %(seen)s::integer + 1 where id = %(id)s::bigint;

-- name: bare_finish
update sched_lab.bare_jobs set status = 'succeeded' where id = %(id)s::bigint;

-- name: bare_is_left
select exists (select from sched_lab.bare_jobs j where j.queue = %(queue)s::text and j.status = 'pending');

-- name: bare_counts
select j.id, j.attempt_count from sched_lab.bare_jobs j where j.queue = %(queue)s::text;

-- name: jobs_fill
insert into sched_lab.jobs (job_type, queue, status) select 'lab.sleep', %(queue)s::text, 'pending'
from generate_series(1, %(jobs)s::integer);

-- name: jobs_is_left
select exists (select from sched_lab.jobs j where j.queue = %(queue)s::text and j.status = 'pending');

-- name: jobs_counts
select j.id, j.attempt_count from sched_lab.jobs j where j.queue = %(queue)s::text;

-- name: sessions_look
-- Of these sessions: how many are idle in transaction, and how old the oldest transaction is, in seconds and in
-- transactions begun since. A session that has written holds back vacuum by its own number, backend_xid, as well.
select count(*) filter (where a.state = 'idle in transaction'),
       coalesce(max(extract(epoch from clock_timestamp() - a.xact_start)), 0)::double precision,
       coalesce(max(greatest(age(a.backend_xmin), age(a.backend_xid))), 0)
from pg_stat_activity a
where a.pid = any (%(pids)s::integer[]);

-- name: bystander_reset
truncate sched_lab.bystander;
insert into sched_lab.bystander values (0, repeat('x', 200));

-- name: bystander_change
update sched_lab.bystander set changes = changes + 1;

-- name: bystander_changes
select changes from sched_lab.bystander;

-- name: bystander_vacuum
vacuum (truncate false) sched_lab.bystander;

-- name: bystander_dead
-- Dead row versions that the vacuum just before could not remove.
select s.n_dead_tup from pg_stat_user_tables s where s.relid = 'sched_lab.bystander'::regclass;

-- name: plan_fill_pending
insert into sched_lab.jobs (job_type, queue, status, available_at)
select 'lab.none', 'lab', 'pending', clock_timestamp() - interval '1 second' from generate_series(1, %(jobs)s::integer);

-- name: plan_fill_finished
insert into sched_lab.jobs (job_type, queue, status, attempt_count, available_at, started_at, completed_at)
select 'lab.none', 'lab', 'succeeded', 1, f.at, f.at, f.at
from generate_series(1, %(jobs)s::integer) as g (n)
cross join lateral (select clock_timestamp() - interval '30 days' + g.n * interval '1 second' as at) f;

-- name: plan_vacuum
vacuum (analyze) sched_lab.jobs;

-- name: jobs_clear
truncate sched_lab.jobs, sched_lab.attempts restart identity;

-- name: plan_claim_source
select p.prosrc from pg_proc p where p.oid = 'sched_lab.claim(text[], uuid, integer, interval)'::regprocedure;

-- name: plan_claim_index
select pg_get_indexdef('sched_lab.jobs_claim'::regclass);

-- name: plan_index_size
select pg_relation_size(to_regclass('sched_lab.jobs_claim'));

-- name: plan_drop_index
drop index if exists sched_lab.jobs_claim;

-- name: plan_index_same_columns
create index jobs_claim on sched_lab.jobs (queue, priority, available_at, id);

-- name: plan_index_status_first
create index jobs_claim on sched_lab.jobs (status, queue, priority, available_at, id);

-- name: plan_call_claim
explain (analyze, format json)
select * from sched_lab.claim(array['lab'], gen_random_uuid(), 10, interval '15 seconds');

-- name: killed_fill
insert into sched_lab.jobs (job_type, queue, status, payload)
select 'lab.sleep', 'killed', 'pending', jsonb_build_object('seconds', %(seconds)s::double precision)
from generate_series(1, %(jobs)s::integer);

-- name: killed_running
-- Running jobs with who has them, their last sign of life and the end of their lease.
select j.id, w.name, j.attempt_count, j.started_at, j.heartbeat_at, j.lease_expires_at
from sched_lab.jobs j
join sched_lab.workers w on w.id = j.lease_owner
where j.queue = 'killed' and j.status = 'running'
order by j.id;

-- name: killed_unfinished
select count(*) from sched_lab.jobs j where j.queue = 'killed' and j.completed_at is null;

-- name: killed_attempts
select a.job_id, a.number, coalesce(w.name, a.worker::text), a.started_at, a.ended_at, a.outcome
from sched_lab.attempts a
join sched_lab.jobs j on j.id = a.job_id and j.queue = 'killed'
left join sched_lab.workers w on w.id = a.worker
order by a.job_id, a.number;

-- name: backoff_draws
-- Delays of the product's function after each attempt, for a seed that makes them repeat.
select n.attempt, extract(epoch from sched_lab.retry_delay(n.attempt, %(base)s, %(max)s, %(jitter)s))::double precision
from (select setseed(%(seed)s)) as seeded
cross join generate_series(1, %(draws)s::integer) as d (draw)
cross join generate_series(1, %(attempts)s::integer) as n (attempt);

-- name: backoff_fill
insert into sched_lab.jobs (job_type, queue, status, max_attempts, retry_base, retry_max, retry_jitter)
select 'lab.fail', 'backoff', 'pending', %(attempts)s::integer, %(base)s, %(max)s, %(jitter)s
from generate_series(1, %(jobs)s::integer);

-- name: backoff_unfinished
select count(*) from sched_lab.jobs j where j.queue = 'backoff' and j.status <> 'dead';

-- name: backoff_gaps
-- Seconds from the start of each attempt to the start of the next one.
select g.number, g.gap
from (
  select a.number,
         extract(epoch from lead(a.started_at) over (partition by a.job_id order by a.number) - a.started_at)
           ::double precision as gap
  from sched_lab.attempts a
  join sched_lab.jobs j on j.id = a.job_id and j.queue = 'backoff'
) g
where g.gap is not null
order by g.number, g.gap;

-- The raw limit, a pgbench script: what any worker has to do for 500 jobs and no more. Claim under a fresh token and
-- commit without waiting for the disk; complete what is still leased under that token, write the attempts, and commit.
-- Same tables, columns, indexes and constraints as the product; none of its functions, no answers but ids and tokens.
with picked as materialized (
  select j.id
  from sched.jobs j
  where j.queue = 'default' and j.status = 'pending'
  order by j.priority, j.available_at, j.id
  limit 500
  for update skip locked
), claimed as (
  update sched.jobs j
  set status = 'running', attempt_count = j.attempt_count + 1, started_at = clock_timestamp(),
      heartbeat_at = clock_timestamp(), lease_owner = '00000000-0000-0000-0000-000000000001',
      lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp() + interval '15 seconds'
  from picked p
  where j.id = p.id
  returning j.id, j.lease_token
)
select quote_literal(array_agg(c.id order by c.id)::text) as ids,
       quote_literal(array_agg(c.lease_token order by c.id)::text) as tokens,
       set_config('synchronous_commit', 'off', true) as not_durable
from claimed c \gset

with ended as materialized (
  select e.id, e.token
  from unnest(cast(:ids as bigint[]), cast(:tokens as uuid[])) as e (id, token)
  order by e.id
), settled as (
  update sched.jobs j
  set status = 'succeeded', completed_at = clock_timestamp(),
      lease_owner = null, lease_token = null, lease_expires_at = null
  from ended e
  where j.id = e.id and j.lease_token = e.token and j.lease_expires_at > clock_timestamp()
  returning j.id, j.attempt_count, j.started_at, j.completed_at, e.token
)
insert into sched.attempts (job_id, number, worker, lease_token, started_at, ended_at, outcome)
select s.id, s.attempt_count, '00000000-0000-0000-0000-000000000001', s.token, s.started_at, s.completed_at, 'succeeded'
from settled s;

-- name: jobs_claim
-- Lease up to limit pending jobs of these queues to one worker: see sched.claim. A claim need not be durable: lost
-- in a crash of the server, it is a job claimed again, and the flush of a completion covers it.
select c.id, c.job_type, c.payload, c.run, c.queue, c.attempt, c.max_attempts, c.timeout, c.idempotency_key,
       c.schedule, c.logical_date, c.local_date, c.interval_start, c.interval_end, c.covers_from, c.generation,
       c.origin, c.lease_token::text as lease_token
from (select set_config('synchronous_commit', 'off', true)) as not_durable,
     sched.claim(%(queues)s::text[], %(worker)s::uuid, %(limit)s::integer, %(lease)s::interval) c;

-- name: jobs_orphans
-- Jobs that a worker has claimed without knowing it: the answer to its claim was lost. Index: jobs_running.
select j.id, j.job_type, j.lease_token::text as lease_token
from sched.jobs j
where j.status = 'running' and j.lease_owner = %(worker)s::uuid and j.lease_token <> all (%(tokens)s::uuid[])
order by j.id;

-- name: jobs_complete
-- Record these attempts as succeeded; one outcome per job, in the order given: see sched.complete.
select c.outcome
from sched.complete(
  %(ids)s::bigint[], %(tokens)s::uuid[], %(results)s::text[]::jsonb[], %(metadata)s::text[]::jsonb[]) c;

-- name: jobs_fail
-- Record these attempts as not succeeded; one outcome per job, in the order given: see sched.fail.
select f.outcome
from sched.fail(
  %(ids)s::bigint[], %(tokens)s::uuid[], %(outcomes)s::text[], %(errors)s::text[], %(delays)s::interval[],
  %(metadata)s::text[]::jsonb[]) f;

-- name: jobs_hand_back
-- Return claimed jobs without spending the attempt; one outcome per job, in the order given: see sched.hand_back.
select h.outcome
from sched.hand_back(%(ids)s::bigint[], %(tokens)s::uuid[]) h;

-- name: jobs_heartbeat
-- Extend leases, and say how far the jobs are; rows that somebody holds are in no answer: see sched.heartbeat.
select h.id, h.outcome, h.is_cancel_requested
from sched.heartbeat(
  %(ids)s::bigint[], %(tokens)s::uuid[], %(lease)s::interval, %(fractions)s::real[], %(notes)s::text[]) h;

-- name: jobs_reap
-- Take over expired leases and repeat admission: see sched.reap.
select r.is_busy, r.retried, r.died, r.cancelled, r.admitted
from sched.reap(%(by)s::text) r;

-- name: jobs_remain
-- Whether a draining worker of these queues has a reason to stay: something is claimable, running (here or
-- elsewhere), due again, or waits beside a free slot. Jobs whose backoff ends later are no reason.
-- Indexes: jobs_claim, jobs_running, jobs_scheduled, jobs_waiting_order.
select exists (
    select from unnest(%(queues)s::text[]) as q (queue)
    cross join lateral (
      select from sched.jobs j where j.status = 'pending' and j.queue = q.queue limit 1) as claimable)
  or exists (select from sched.jobs j where j.status = 'running' and j.queue = any (%(queues)s::text[]))
  or exists (
    select from sched.jobs j
    where j.status = 'scheduled' and j.available_at <= clock_timestamp() and j.queue = any (%(queues)s::text[]))
  or sched.admissible_keys() is not null;

-- name: jobs_next_due
-- In how many seconds the next scheduled job is due, if it is soon: see sched.next_due.
select sched.next_due(%(queues)s::text[], %(within)s::interval);

-- name: jobs_enqueue_many
-- Enqueue jobs in the caller's transaction; one row per object, in order: see sched.enqueue_many. Sent through any
-- driver, so the parameter is a text, and no colon stands where a driver could take it for a placeholder.
select e.id, e.is_created
from sched.enqueue_many(cast(cast(%(jobs)s as text) as jsonb)) e;

-- name: server_version
-- What a connection of an application leads to.
select version();

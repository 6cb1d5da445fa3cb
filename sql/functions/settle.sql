-- Settling: record how an attempt ended, if its lease is still ours. Every write here matches (id, token, running,
-- lease not expired); a worker that lost its lease changes no row and is told so. Each returns one row per job:
-- `settled`, `already_yours` (this very attempt was recorded before: a repeated call after a lost answer) or `lost`.
-- Lock order: limits by key, then jobs by id.

-- Lock the keys whose slots these jobs hold, in key order; returns them. Call it before any job is touched.
create or replace function sched.lock_held_keys(p_ids bigint[]) returns text[]
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_keys text[];
begin
  select array_agg(distinct k) into v_keys
  from sched.jobs j, unnest(array[j.overlap_key, j.limit_key]) as k
  where j.id = any (p_ids) and (j.holds_overlap or j.holds_limit) and k is not null;
  if v_keys is not null then
    perform sched.lock_keys(v_keys);
  end if;
  return v_keys;
end
$$;

-- The answers for a batch: p_settled are the tokens of those settled just now.
create or replace function sched.settle_outcomes(p_ids bigint[], p_tokens uuid[], p_settled uuid[])
returns table (id bigint, outcome text)
language plpgsql stable as $$
#variable_conflict use_column
begin
  if cardinality(p_settled) = cardinality(p_ids) then
    return query select e.id, 'settled' from unnest(p_ids) as e (id);
    return;
  end if;
  return query
  select e.id,
         case when e.token = any (p_settled) then 'settled'
              when exists (select from sched.attempts a where a.lease_token = e.token and a.outcome <> 'lost')
              then 'already_yours'
              else 'lost' end
  from unnest(p_ids, p_tokens) as e (id, token);
end
$$;

-- These attempts succeeded. The result is kept with the job and, once per idempotency key, in job_results: the first
-- committed one stays.
--
-- Only a running job has a token. Rows are updated in id order, driven by the sorted batch: all other plans are
-- switched off, and `= any (array[...])` cannot be a merge join, so that one plan serves a table of any size, is made
-- once per session, and never reads all of it. A row that somebody has changed meanwhile is judged again, clock
-- included; one that was only locked is still ours, whatever its lease says.
create or replace function sched.complete(
  p_ids bigint[], p_tokens uuid[], p_results jsonb[], p_metadata jsonb[] default null
) returns table (id bigint, outcome text)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_material = off as $$
#variable_conflict use_column
declare
  v_keys text[];
  v_settled uuid[];
begin
  v_keys := sched.lock_held_keys(p_ids);
  with ended as materialized (
    select e.id, e.token, e.result, coalesce(e.metadata, '{}') as metadata
    from unnest(p_ids, p_tokens, p_results, p_metadata) as e (id, token, result, metadata)
    order by e.id
  ), settled as (
    update sched.jobs j
    set status = 'succeeded', result = e.result, completed_at = clock_timestamp(), lost_in_a_row = 0,
        last_error = null, holds_overlap = false, holds_limit = false, cancel_requested_at = null,
        lease_owner = null, lease_token = null, lease_expires_at = null
    from ended e
    join sched.jobs was on was.id = any (array[e.id])
    where j.id = any (array[e.id]) and j.lease_token = e.token and j.lease_expires_at > clock_timestamp()
    returning j.id, j.attempt_count, j.started_at, j.completed_at, j.idempotency_key,
              was.lease_owner as worker, e.token, e.result, e.metadata
  ), tried as (
    insert into sched.attempts (job_id, number, worker, lease_token, started_at, ended_at, outcome, metadata)
    select s.id, s.attempt_count, s.worker, s.token, s.started_at, s.completed_at, 'succeeded', s.metadata
    from settled s
  ), kept as (
    insert into sched.job_results (key, result, produced_by, attempt, worker)
    select s.idempotency_key, s.result, s.id, s.attempt_count, s.worker
    from settled s
    where s.idempotency_key is not null
    on conflict do nothing
  )
  select array_agg(s.token) into v_settled from settled s;

  if v_keys is not null then
    perform sched.admit(v_keys);
  end if;
  return query select o.id, o.outcome from sched.settle_outcomes(p_ids, p_tokens, v_settled) o;
end
$$;

-- These attempts did not succeed. p_outcomes: `failed`, `timed_out` and `retried` go back with backoff (or after
-- p_delays), until the attempts are used up; `discarded` is dead at once; `held` waits for a person; `cancelled` ends.
-- A job that was asked to cancel ends cancelled, however its attempt failed.
create or replace function sched.fail(
  p_ids bigint[], p_tokens uuid[], p_outcomes text[], p_errors text[], p_delays interval[] default null,
  p_metadata jsonb[] default null
) returns table (id bigint, outcome text)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_material = off as $$
#variable_conflict use_column
declare
  v_keys text[];
  v_settled uuid[];
  v_dead bigint[];
begin
  v_keys := sched.lock_held_keys(p_ids);
  with ended as materialized (
    select e.id, e.token, e.outcome, e.error, e.delay, coalesce(e.metadata, '{}') as metadata
    from unnest(p_ids, p_tokens, p_outcomes, p_errors, p_delays, p_metadata)
      as e (id, token, outcome, error, delay, metadata)
    order by e.id
  ), live as (
    select e.*, j.lease_owner, j.lease_token,
           case
             when j.cancel_requested_at is not null or e.outcome = 'cancelled' then 'cancelled'
             when e.outcome = 'held' then 'held'
             when e.outcome = 'discarded' or j.attempt_count >= j.max_attempts then 'dead'
             else 'scheduled'
           end as next_status
    from ended e
    join sched.jobs j on j.id = any (array[e.id])
    where j.lease_token = e.token and j.lease_expires_at > clock_timestamp()
  ), settled as (
    update sched.jobs j
    set status = l.next_status, last_error = l.error, lost_in_a_row = 0,
        available_at = case when l.next_status = 'scheduled' then clock_timestamp() + coalesce(l.delay,
          sched.retry_delay(j.attempt_count, j.retry_base, j.retry_max, j.retry_jitter)) else j.available_at end,
        completed_at = case when l.next_status in ('dead', 'cancelled') then clock_timestamp() end,
        holds_overlap = j.holds_overlap and l.next_status = 'scheduled',
        holds_limit = j.holds_limit and l.next_status = 'scheduled',
        lease_owner = null, lease_token = null, lease_expires_at = null
    from live l
    where j.id = any (array[l.id]) and j.lease_token = l.token and j.lease_expires_at > clock_timestamp()
    returning j.id, j.status, j.attempt_count, j.started_at, l.lease_owner as worker, l.lease_token as token,
              l.outcome, l.error, l.metadata
  ), tried as (
    insert into sched.attempts (job_id, number, worker, lease_token, started_at, ended_at, outcome, error, metadata)
    select s.id, s.attempt_count, s.worker, s.token, s.started_at, clock_timestamp(),
           case when s.status = 'cancelled' then 'cancelled' else s.outcome end, s.error, s.metadata
    from settled s
  )
  select array_agg(s.token), array_agg(s.id) filter (where s.status = 'dead') into v_settled, v_dead from settled s;

  perform sched.bury(v_dead);
  perform sched.admit(v_keys);
  return query select o.id, o.outcome from sched.settle_outcomes(p_ids, p_tokens, v_settled) o;
end
$$;

-- Jobs that just died: `on_final_failure: pause` pauses their schedules and holds what waits in them.
create or replace function sched.bury(p_ids bigint[]) returns void
language plpgsql volatile as $$
declare
  v_paused integer[];
begin
  if p_ids is null then
    return;
  end if;
  insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason)
  select 'job_dead', j.schedule_id, j.logical_date, j.id, 'sched', left(j.last_error, 1000)
  from sched.jobs j
  where j.id = any (p_ids);

  with paused as (
    insert into sched.pauses (schedule_id, from_at, actor, reason)
    select distinct on (j.schedule_id) j.schedule_id, clock_timestamp(), 'sched', 'on_final_failure: job ' || j.id
    from sched.jobs j
    join sched.schedule_revisions r on r.schedule_id = j.schedule_id and r.revision = j.revision
    where j.id = any (p_ids) and r.on_final_failure = 'pause'
    order by j.schedule_id, j.id
    on conflict do nothing
    returning schedule_id
  )
  select array_agg(p.schedule_id) into v_paused from paused p;
  if v_paused is not null then
    update sched.jobs j
    set status = 'held', held_by = 'pause', waiting_for = null, holds_overlap = false, holds_limit = false
    where j.schedule_id = any (v_paused) and j.status = 'waiting';
  end if;
end
$$;

-- Give back jobs that were claimed but not finished, at shutdown or for want of a slot: claimable at once, the attempt
-- not spent. A job that holds a slot keeps it. One that was asked to cancel is not run again: it ends cancelled.
create or replace function sched.hand_back(p_ids bigint[], p_tokens uuid[]) returns table (id bigint, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_keys text[] := sched.lock_held_keys(p_ids);
  v_returned uuid[];
  v_queues text[];
begin
  perform 1 from sched.jobs j where j.id = any (p_ids) order by j.id for update;
  with live as (
    select e.id, e.token, j.lease_owner, j.cancel_requested_at is not null as is_cancelled
    from unnest(p_ids, p_tokens) as e (id, token)
    join sched.jobs j on j.id = e.id
    where j.lease_token = e.token and j.lease_expires_at > clock_timestamp()
  ), returned as (
    update sched.jobs j
    set status = case when l.is_cancelled then 'cancelled' else 'pending' end, attempt_count = j.attempt_count - 1,
        completed_at = case when l.is_cancelled then clock_timestamp() end,
        last_error = case when l.is_cancelled then 'cancelled: its worker gave it back' else j.last_error end,
        holds_overlap = j.holds_overlap and not l.is_cancelled,
        holds_limit = j.holds_limit and not l.is_cancelled,
        lease_owner = null, lease_token = null, lease_expires_at = null
    from live l
    where j.id = l.id
    returning j.id, j.schedule_id, j.logical_date, j.status, j.queue, l.token, l.lease_owner
  ), noted as (
    insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason)
    select 'job_handed_back', r.schedule_id, r.logical_date, r.id, r.lease_owner::text, 'not run by its worker'
    from returned r
  )
  select array_agg(r.token), array_agg(distinct r.queue) filter (where r.status = 'pending')
  into v_returned, v_queues
  from returned r;
  perform sched.admit(v_keys);
  if v_queues is not null then
    perform sched.wake(v_queues);
  end if;
  return query
  select e.id, case when e.token = any (v_returned) then 'settled' else 'lost' end
  from unnest(p_ids, p_tokens) as e (id, token);
end
$$;

-- What people do to jobs and schedules. Each records who and why in events, and returns what became of it.

-- What an action does with a job in this status: its outcome; null when it leaves the job alone.
create or replace function sched.action_outcome(p_action text, p_status text) returns text
language sql immutable parallel safe as $$
  select case
    when p_action = 'retry' and p_status in ('dead', 'cancelled', 'held') then 'retried'
    when p_action = 'hold' and p_status in ('scheduled', 'waiting', 'pending') then 'held'
    when p_action = 'release' and p_status = 'held' then 'released'
    when p_action = 'cancel' and p_status in ('scheduled', 'waiting', 'pending', 'held') then 'cancelled'
    when p_action = 'cancel' and p_status = 'running' then 'asked'
    when p_action = 'replay' and p_status in ('succeeded', 'dead', 'cancelled') then 'replayed'
  end
$$;

-- Do to these jobs what a person asks for: retry, hold, release, cancel or replay. Returns a row per job: the outcome,
-- as sched.action_outcome says; else its unchanged status, or `not_found`; and the new job of a replay. Jobs that were
-- changed get an event. Admission comes last, once for all. Lock order: limits by key, then jobs by id.
create or replace function sched.steer(p_action text, p_ids bigint[], p_actor text, p_reason text default null)
returns table (id bigint, outcome text, replay_id bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_keys text[] := sched.lock_jobs(p_ids);
  v_ids bigint[];
  v_was text[];
  v_replays bigint[];
begin
  select array_agg(j.id order by j.id), array_agg(j.status order by j.id) into v_ids, v_was
  from sched.jobs j
  where j.id = any (p_ids) and sched.action_outcome(p_action, j.status) is not null;
  case
    when v_ids is null then null;
    when p_action in ('retry', 'release') then perform sched.requeue(v_ids);
    when p_action = 'hold' then perform sched.set_aside(v_ids);
    when p_action = 'cancel' then perform sched.call_off(v_ids, p_actor);
    when p_action = 'replay' then v_replays := sched.copy_jobs(v_ids);
  end case;

  insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason, details)
  select case when o.outcome = 'asked' then 'job_cancel_asked' else 'job_' || o.outcome end,
         j.schedule_id, j.logical_date, j.id, p_actor, p_reason,
         jsonb_strip_nulls(jsonb_build_object('was', s.was, 'replay', s.replay_id))
  from unnest(v_ids, v_was, v_replays) as s (id, was, replay_id)
  cross join lateral (select sched.action_outcome(p_action, s.was) as outcome) o
  join sched.jobs j on j.id = s.id
  order by j.id;

  perform sched.admit(v_keys);
  return query
  select e.id, coalesce(sched.action_outcome(p_action, s.was), j.status, 'not_found'), s.replay_id
  from unnest(p_ids) with ordinality as e (id, place)
  left join unnest(v_ids, v_was, v_replays) as s (id, was, replay_id) on s.id = e.id
  left join sched.jobs j on j.id = e.id
  order by e.place;
end
$$;

-- Lock these jobs, their keys first; returns the keys.
create or replace function sched.lock_jobs(p_ids bigint[]) returns text[]
language plpgsql volatile as $$
declare
  v_keys text[];
begin
  select array_agg(distinct k) into v_keys
  from sched.jobs j, unnest(array[j.overlap_key, j.limit_key]) as k
  where j.id = any (p_ids) and k is not null;
  perform sched.lock_keys(v_keys);
  perform 1 from sched.jobs j where j.id = any (p_ids) order by j.id for update;
  return v_keys;
end
$$;

-- Put these held, dead or cancelled jobs back into the queue, each with at least one attempt more: they wait for their
-- slots, or are claimable. Returns how many. Call it with their keys locked, and admit afterwards.
create or replace function sched.requeue(p_ids bigint[]) returns integer
language plpgsql volatile as $$
declare
  v_now timestamptz := clock_timestamp();
  v_count integer;
  v_queues text[];
begin
  with requeued as (
    update sched.jobs j
    set status = case when sched.first_key(j.overlap_key, j.limit_key) is null then 'pending' else 'waiting' end,
        waiting_for = sched.first_key(j.overlap_key, j.limit_key), held_by = null, completed_at = null,
        cancel_requested_at = null, lost_in_a_row = 0, available_at = v_now,
        max_attempts = greatest(j.max_attempts, j.attempt_count + 1)
    where j.id = any (p_ids) and j.status in ('held', 'dead', 'cancelled')
    returning j.queue, j.status
  )
  select count(*), array_agg(distinct r.queue) filter (where r.status = 'pending') into v_count, v_queues
  from requeued r;
  if v_queues is not null then
    perform sched.wake(v_queues);
  end if;
  return v_count;
end
$$;

-- Put these jobs, which have not started, on hold until a person releases them. Their slots are free afterwards.
create or replace function sched.set_aside(p_ids bigint[]) returns void
language sql volatile as $$
  update sched.jobs j
  set status = 'held', held_by = 'person', waiting_for = null, holds_overlap = false, holds_limit = false
  where j.id = any (p_ids)
$$;

-- Cancel these unfinished or held jobs. Running ones are asked, and keep their slots until they have ended.
create or replace function sched.call_off(p_ids bigint[], p_actor text) returns void
language sql volatile as $$
  update sched.jobs j
  set cancel_requested_at = clock_timestamp()
  where j.id = any (p_ids) and j.status = 'running' and j.cancel_requested_at is null;

  update sched.jobs j
  set status = 'cancelled', completed_at = clock_timestamp(), held_by = null, waiting_for = null,
      holds_overlap = false, holds_limit = false, last_error = 'cancelled by ' || p_actor
  where j.id = any (p_ids) and j.status <> 'running';
$$;

-- Make a new job of each of these finished ones, to the same work under the same limits, as if it had been asked for by
-- hand: origin manual, no logical date, for the result of a date is replaced by a backfill only. It has the data
-- interval of the old job, and a key of its own: the old one and `#replay-<id of the new job>`, so that its result is
-- kept beside the old one; none if the old job had none. Returns the new ids in the order given. Call it with the keys
-- of the old jobs locked, and admit afterwards.
create or replace function sched.copy_jobs(p_ids bigint[]) returns bigint[]
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_queues text[];
begin
  select array_agg(nextval(pg_get_serial_sequence('sched.jobs', 'id'))) into v_ids
  from generate_series(1, cardinality(p_ids));
  with copied as (
    insert into sched.jobs (id, job_type, payload, run, status, waiting_for, origin, queue, priority, max_attempts,
                            timeout, retry_base, retry_max, retry_jitter, schedule_id, schedule, revision,
                            interval_start, interval_end, covers_from, overlap_key, limit_key, wait_order,
                            idempotency_key, replay_of)
    overriding system value
    select c.id, j.job_type, j.payload, j.run, case when w.key is null then 'pending' else 'waiting' end, w.key,
           'manual', j.queue, j.priority, j.max_attempts, j.timeout, j.retry_base, j.retry_max, j.retry_jitter,
           j.schedule_id, j.schedule, j.revision, j.interval_start, j.interval_end, j.covers_from, j.overlap_key,
           j.limit_key, j.wait_order,
           regexp_replace(j.idempotency_key, '#replay-[0-9]+$', '') || '#replay-' || c.id, j.id
    from unnest(p_ids, v_ids) as c (of, id)
    join sched.jobs j on j.id = c.of
    cross join lateral (select sched.first_key(j.overlap_key, j.limit_key) as key) w
    order by c.id
    returning queue, status
  )
  select array_agg(distinct c.queue) filter (where c.status = 'pending') into v_queues from copied c;
  if v_queues is not null then
    perform sched.wake(v_queues);
  end if;
  return v_ids;
end
$$;

-- Make a dead, cancelled or held job run again: outcome `retried`, else its unchanged status, or `not_found`. It has
-- at least one attempt more.
create or replace function sched.retry(p_id bigint, p_actor text, p_reason text default null) returns text
language sql volatile as $$ select s.outcome from sched.steer('retry', array[p_id], p_actor, p_reason) s $$;

-- Keep a job that has not started from starting until a person releases it: outcome `held`, else its unchanged
-- status, or `not_found`. A running job is not held.
create or replace function sched.hold(p_id bigint, p_actor text, p_reason text default null) returns text
language sql volatile as $$ select s.outcome from sched.steer('hold', array[p_id], p_actor, p_reason) s $$;

-- Let a held job go on, whoever held it: outcome `released`, else its unchanged status, or `not_found`. It has at least
-- one attempt more.
create or replace function sched.release(p_id bigint, p_actor text, p_reason text default null) returns text
language sql volatile as $$ select s.outcome from sched.steer('release', array[p_id], p_actor, p_reason) s $$;

-- Cancel a job: outcome `cancelled`; `asked` for a running one, which is told at its next heartbeat and loses its
-- lease after 30 s; else its unchanged final status, or `not_found`.
create or replace function sched.cancel(p_id bigint, p_actor text, p_reason text default null) returns text
language sql volatile as $$ select s.outcome from sched.steer('cancel', array[p_id], p_actor, p_reason) s $$;

-- Make a new job that does the work of a finished one again, and leave the finished one as it is: outcome `replayed`
-- with the new job, else its unchanged status, or `not_found`.
create or replace function sched.replay(p_id bigint, p_actor text, p_reason text default null)
returns table (outcome text, job_id bigint)
language sql volatile as $$
  select s.outcome, s.replay_id from sched.steer('replay', array[p_id], p_actor, p_reason) s
$$;

-- Pause a schedule from now on; with p_keep its dates stay undecided until resume. Outcome `paused`, `already_paused`
-- or `not_found`. Waits for a pass that is under way, so that no date due after the pause began is fired.
create or replace function sched.pause(p_schedule text, p_keep boolean, p_actor text, p_reason text default null)
returns text
language plpgsql volatile as $$
declare
  v_id integer;
begin
  perform sched.take_pass_lock();
  select s.id into v_id from sched.schedules s where s.name = p_schedule for update;
  if v_id is null then
    return 'not_found';
  end if;
  insert into sched.pauses (schedule_id, from_at, keep, actor, reason)
  values (v_id, clock_timestamp(), p_keep, p_actor, p_reason)
  on conflict do nothing;
  if not found then
    return 'already_paused';
  end if;
  insert into sched.events (kind, schedule_id, actor, reason) values ('paused', v_id, p_actor, p_reason);
  return 'paused';
end
$$;

-- End the open pause of a schedule, and release the jobs that `on_final_failure: pause` put on hold with it. Outcome
-- `resumed`, `not_paused` or `not_found`.
create or replace function sched.resume(p_schedule text, p_actor text, p_reason text default null) returns text
language plpgsql volatile as $$
declare
  v_id integer;
begin
  perform sched.take_pass_lock();
  select s.id into v_id from sched.schedules s where s.name = p_schedule for update;
  if v_id is null then
    return 'not_found';
  end if;
  update sched.pauses p set until_at = clock_timestamp() where p.schedule_id = v_id and p.until_at is null;
  if not found then
    return 'not_paused';
  end if;
  insert into sched.events (kind, schedule_id, actor, reason) values ('resumed', v_id, p_actor, p_reason);
  perform sched.release_paused(v_id);
  return 'resumed';
end
$$;

-- Let the jobs of a schedule go on that a pause put on hold. Lock order: limits by key, then jobs.
create or replace function sched.release_paused(p_schedule_id integer) returns void
language plpgsql volatile as $$
declare
  v_keys text[];
begin
  select array_agg(distinct k) into v_keys
  from sched.jobs j, unnest(array[j.overlap_key, j.limit_key]) as k
  where j.schedule_id = p_schedule_id and j.status = 'held' and j.held_by = 'pause' and k is not null;
  perform sched.lock_keys(v_keys);
  perform sched.requeue(array(
    select j.id from sched.jobs j
    where j.schedule_id = p_schedule_id and j.status = 'held' and j.held_by = 'pause'));
  perform sched.admit(v_keys);
end
$$;

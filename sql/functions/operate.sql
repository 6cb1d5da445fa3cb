-- What people do to jobs and schedules. Each records who and why in events, and returns what became of it.

-- Lock a job, its keys first; its status, keys and queue. status is null when there is no such job.
create or replace function sched.lock_job(p_id bigint, out status text, out keys text[], out queue text)
language plpgsql volatile as $$
begin
  select array_remove(array[j.overlap_key, j.limit_key], null) into keys from sched.jobs j where j.id = p_id;
  perform sched.lock_keys(keys);
  select j.status, j.queue into status, queue from sched.jobs j where j.id = p_id for update;
end
$$;

-- Put a job that is locked with its keys back into the queue: it waits for its slots, or is claimable.
create or replace function sched.requeue(p_id bigint, p_keys text[], p_queue text) returns void
language plpgsql volatile as $$
begin
  update sched.jobs j
  set status = case when cardinality(p_keys) = 0 then 'pending' else 'waiting' end, waiting_for = p_keys[1],
      held_by = null, completed_at = null, cancel_requested_at = null, lost_in_a_row = 0,
      available_at = clock_timestamp()
  where j.id = p_id;
  if cardinality(p_keys) = 0 then
    perform sched.wake(array[p_queue]);
  else
    perform sched.admit(p_keys);
  end if;
end
$$;

-- Note what a person did to a job.
create or replace function sched.note_job(p_kind text, p_id bigint, p_actor text, p_reason text, p_was text)
returns void
language sql volatile as $$
  insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason, details)
  select p_kind, j.schedule_id, j.logical_date, j.id, p_actor, p_reason, jsonb_build_object('was', p_was)
  from sched.jobs j where j.id = p_id
$$;

-- Make a dead, cancelled or held job run again: outcome `retried`, else its unchanged status, or `not_found`. It has
-- at least one attempt more. Lock order: limits by key, then the job.
create or replace function sched.retry(p_id bigint, p_actor text, p_reason text default null) returns text
language plpgsql volatile as $$
declare
  v record;
begin
  select * into v from sched.lock_job(p_id);
  if v.status is null or v.status not in ('dead', 'cancelled', 'held') then
    return coalesce(v.status, 'not_found');
  end if;
  update sched.jobs j set max_attempts = greatest(j.max_attempts, j.attempt_count + 1) where j.id = p_id;
  perform sched.requeue(p_id, v.keys, v.queue);
  perform sched.note_job('job_retried', p_id, p_actor, p_reason, v.status);
  return 'retried';
end
$$;

-- Keep a job that has not started from starting until a person releases it: outcome `held`, else its unchanged
-- status, or `not_found`. A running job is not held. Lock order: limits by key, then the job.
create or replace function sched.hold(p_id bigint, p_actor text, p_reason text default null) returns text
language plpgsql volatile as $$
declare
  v record;
begin
  select * into v from sched.lock_job(p_id);
  if v.status is null or v.status not in ('scheduled', 'waiting', 'pending') then
    return coalesce(v.status, 'not_found');
  end if;
  update sched.jobs j
  set status = 'held', held_by = 'person', waiting_for = null, holds_overlap = false, holds_limit = false
  where j.id = p_id;
  perform sched.note_job('job_held', p_id, p_actor, p_reason, v.status);
  perform sched.admit(v.keys);
  return 'held';
end
$$;

-- Let a held job go on, whoever held it: outcome `released`, else its unchanged status, or `not_found`. A job whose
-- attempts are used up needs sched.retry. Lock order: limits by key, then the job.
create or replace function sched.release(p_id bigint, p_actor text, p_reason text default null) returns text
language plpgsql volatile as $$
declare
  v record;
begin
  select * into v from sched.lock_job(p_id);
  if v.status is distinct from 'held' then
    return coalesce(v.status, 'not_found');
  end if;
  update sched.jobs j set max_attempts = greatest(j.max_attempts, j.attempt_count + 1) where j.id = p_id;
  perform sched.requeue(p_id, v.keys, v.queue);
  perform sched.note_job('job_released', p_id, p_actor, p_reason, v.status);
  return 'released';
end
$$;

-- Cancel a job: outcome `cancelled`; `asked` for a running one, which is told at its next heartbeat and loses its
-- lease after 30 s; else its unchanged final status, or `not_found`. Lock order: limits by key, then the job.
create or replace function sched.cancel(p_id bigint, p_actor text, p_reason text default null) returns text
language plpgsql volatile as $$
declare
  v record;
begin
  select * into v from sched.lock_job(p_id);
  if v.status = 'running' then
    update sched.jobs j set cancel_requested_at = clock_timestamp() where j.id = p_id and j.cancel_requested_at is null;
    perform sched.note_job('job_cancel_asked', p_id, p_actor, p_reason, v.status);
    return 'asked';
  end if;
  if v.status is null or v.status in ('succeeded', 'dead', 'cancelled') then
    return coalesce(v.status, 'not_found');
  end if;
  update sched.jobs j
  set status = 'cancelled', completed_at = clock_timestamp(), held_by = null, waiting_for = null,
      holds_overlap = false, holds_limit = false, last_error = 'cancelled by ' || p_actor
  where j.id = p_id;
  perform sched.note_job('job_cancelled', p_id, p_actor, p_reason, v.status);
  perform sched.admit(v.keys);
  return 'cancelled';
end
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

-- Put these held jobs back into the queue, where they wait for their slots or are claimable; returns how many. Call it
-- with their keys locked, and admit afterwards.
create or replace function sched.requeue_held(p_ids bigint[]) returns integer
language plpgsql volatile as $$
declare
  v_count integer;
begin
  update sched.jobs j
  set status = case when w.key is null then 'pending' else 'waiting' end, waiting_for = w.key, held_by = null
  from sched.jobs k
  cross join lateral (select sched.first_key(k.overlap_key, k.limit_key) as key) w
  where k.id = j.id and j.id = any (p_ids) and j.status = 'held';
  get diagnostics v_count = row_count;
  return v_count;
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
  perform sched.requeue_held(array(
    select j.id from sched.jobs j
    where j.schedule_id = p_schedule_id and j.status = 'held' and j.held_by = 'pause'));
  perform sched.admit(v_keys);
end
$$;

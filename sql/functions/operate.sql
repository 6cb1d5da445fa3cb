-- What people do to jobs and schedules. Each records who and why in events, and returns what became of it.

-- Make a dead, cancelled or held job run again: outcome `retried`, else its unchanged status, or `not_found`. It has
-- at least one attempt more. Lock order: limits by key, then the job.
create or replace function sched.retry(p_id bigint, p_actor text, p_reason text default null) returns text
language plpgsql volatile as $$
declare
  v_keys text[];
  v_status text;
  v_queue text;
begin
  select array_remove(array[j.overlap_key, j.limit_key], null) into v_keys from sched.jobs j where j.id = p_id;
  perform sched.lock_keys(v_keys);
  select j.status, j.queue into v_status, v_queue from sched.jobs j where j.id = p_id for update;
  if v_status is null then
    return 'not_found';
  end if;
  if v_status not in ('dead', 'cancelled', 'held') then
    return v_status;
  end if;
  update sched.jobs j
  set status = case when cardinality(v_keys) = 0 then 'pending' else 'waiting' end,
      waiting_for = v_keys[1],
      completed_at = null, cancel_requested_at = null, lost_in_a_row = 0, available_at = clock_timestamp(),
      max_attempts = greatest(j.max_attempts, j.attempt_count + 1)
  where j.id = p_id;
  insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason, details)
  select 'job_retried', j.schedule_id, j.logical_date, j.id, p_actor, p_reason, jsonb_build_object('was', v_status)
  from sched.jobs j where j.id = p_id;
  if cardinality(v_keys) = 0 then
    perform sched.wake(array[v_queue]);
  else
    perform sched.admit(v_keys);
  end if;
  return 'retried';
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

-- End the open pause of a schedule. Outcome `resumed`, `not_paused` or `not_found`.
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
  return 'resumed';
end
$$;

-- Why a payload cannot be a job's, or null. A reader's limits, not ours: a worker that cannot read one payload could not
-- read the others that it claimed with it. What is small cannot be deep, and what is short as well cannot hold a long
-- number: that 1e9999 takes 8 bytes in jsonb. The same limits stand in scheduler/core/storable.py.
create or replace function sched.payload_fault(p_payload jsonb) returns text
language sql immutable parallel safe as $$
  select case
    when jsonb_typeof(p_payload) <> 'object' then 'is not a JSON object'
    when pg_column_size(p_payload) < 400 and octet_length(p_payload::text) < 1000 then null
    when octet_length(p_payload::text) > 262144 then 'is more than 262,144 bytes: store the data and pass a reference'
    when jsonb_path_exists(p_payload, '$.**{101 to last}') then 'is nested more than 100 levels deep: make it flatter'
    when jsonb_path_exists(p_payload, '$.** ? (@.type() == "number" && (@ >= 1e1000 || @ <= -1e1000))')
      then 'holds a number of more than 1,000 digits: send a text'
  end
$$;

-- Enqueue one job, in the caller's transaction. Returns its id and whether it was created: an idempotency key that
-- exists already returns the job that has it. p_run_at in the future makes it `scheduled`; a limit without a free
-- slot makes it `waiting`. Lock order: the limit's key, then the job.
create or replace function sched.enqueue(
  p_job_type text, p_payload jsonb default '{}', p_queue text default 'default', p_priority integer default 100,
  p_run_at timestamptz default null, p_idempotency_key text default null, p_limit_key text default null,
  p_max_attempts integer default 5, p_timeout interval default null
) returns table (id bigint, is_created boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_id bigint;
  v_is_future boolean := p_run_at is not null and p_run_at > clock_timestamp();
  v_fault text := sched.payload_fault(p_payload);
begin
  if v_fault is not null then
    raise exception 'payload %', v_fault using errcode = 'invalid_parameter_value';
  end if;
  -- Keys with "$" are the overlap slots of schedules, and nobody else's.
  if p_limit_key is not null and not exists (
    select from sched.limits l where l.key = p_limit_key and l.key not like '$%') then
    raise exception 'limit "%" is not defined: add it under "limits:" in a definition file and apply', p_limit_key
      using errcode = 'invalid_parameter_value';
  end if;
  if p_limit_key is not null and not v_is_future then
    perform sched.lock_keys(array[p_limit_key]);
  end if;
  insert into sched.jobs (job_type, payload, queue, priority, status, waiting_for, available_at, idempotency_key,
                          limit_key, max_attempts, timeout)
  values (p_job_type, p_payload, p_queue, p_priority,
          case when v_is_future then 'scheduled' when p_limit_key is not null then 'waiting' else 'pending' end,
          case when not v_is_future then p_limit_key end,
          coalesce(p_run_at, clock_timestamp()), p_idempotency_key, p_limit_key, p_max_attempts, p_timeout)
  on conflict do nothing
  returning jobs.id into v_id;
  if v_id is null then
    return query select j.id, false from sched.jobs j where j.idempotency_key = p_idempotency_key;
    return;
  end if;
  if p_limit_key is not null and not v_is_future then
    perform sched.admit(array[p_limit_key]);
  elsif not v_is_future or p_run_at < clock_timestamp() + interval '1 second' then  -- before workers look themselves
    perform sched.wake(array[p_queue]);
  end if;
  return query select v_id, true;
end
$$;

-- Enqueue many jobs at once, in the caller's transaction: a JSON array of objects with job_type and, where they differ
-- from the defaults of sched.enqueue, payload, queue, priority, run_at, idempotency_key, limit_key, max_attempts and
-- timeout. One row per object, in order: the job's id, and whether it was created; of two objects with the same key
-- only the first is. Lock order: the limits' keys, then the jobs.
create or replace function sched.enqueue_many(p_jobs jsonb) returns table (id bigint, is_created boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_keys text[];
  v_fault text;
  v_unknown text;
  v_ids bigint[];
  v_created bigint[];
  v_queues text[];
begin
  select array_agg(distinct w.limit_key) filter (where w.limit_key is not null), min(sched.payload_fault(w.payload))
  into v_keys, v_fault
  from jsonb_to_recordset(p_jobs) as w (limit_key text, payload jsonb);
  if v_fault is not null then
    raise exception 'payload %', v_fault using errcode = 'invalid_parameter_value';
  end if;
  if v_keys is not null then
    select k into v_unknown
    from unnest(v_keys) as k where not exists (select from sched.limits l where l.key = k and l.key not like '$%');
    if v_unknown is not null then
      raise exception 'limit "%" is not defined: add it under "limits:" in a definition file and apply', v_unknown
        using errcode = 'invalid_parameter_value';
    end if;
    perform sched.lock_keys(v_keys);
  end if;

  -- Ids are drawn first, so that each object knows whether it became the job with its id.
  select array_agg(nextval(pg_get_serial_sequence('sched.jobs', 'id'))) into v_ids
  from generate_series(1, jsonb_array_length(p_jobs));
  with inserted as (
    insert into sched.jobs (id, job_type, payload, queue, priority, status, waiting_for, available_at, idempotency_key,
                            limit_key, max_attempts, timeout)
    overriding system value
    select v_ids[w.ordinal], w.job_type, coalesce(w.payload, '{}'), coalesce(w.queue, 'default'),
           coalesce(w.priority, 100),
           case when w.run_at > clock_timestamp() then 'scheduled'
                when w.limit_key is not null then 'waiting'
                else 'pending' end,
           case when w.run_at > clock_timestamp() then null else w.limit_key end,
           coalesce(w.run_at, clock_timestamp()), w.idempotency_key, w.limit_key, coalesce(w.max_attempts, 5), w.timeout
    from rows from (jsonb_to_recordset(p_jobs) as (
           job_type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text,
           limit_key text, max_attempts integer, timeout interval
         )) with ordinality
      as w (job_type, payload, queue, priority, run_at, idempotency_key, limit_key, max_attempts, timeout, ordinal)
    order by w.ordinal
    on conflict do nothing
    returning id, queue, status, available_at
  )
  select array_agg(i.id),
         array_agg(distinct i.queue) filter (
           where i.status = 'pending'
             or i.status = 'scheduled' and i.available_at < clock_timestamp() + interval '1 second')
  into v_created, v_queues
  from inserted i;
  perform sched.admit(v_keys);
  if v_queues is not null then
    perform sched.wake(v_queues);
  end if;

  return query
  select coalesce(c.id, (select j.id from sched.jobs j where j.idempotency_key = w.value ->> 'idempotency_key')),
         c.id is not null
  from jsonb_array_elements(p_jobs) with ordinality as w (value, ordinal)
  left join unnest(v_created) as c (id) on c.id = v_ids[w.ordinal]
  order by w.ordinal;
end
$$;

-- Run a schedule now: a job with origin manual and no logical date, under the definition in force. Obeys overlap:
-- returns outcome `enqueued` with the job, or `overlap` (nothing made, an earlier job is unfinished), or `not_found`.
create or replace function sched.trigger(p_schedule text, p_actor text, p_reason text default null)
returns table (outcome text, job_id bigint)
language plpgsql volatile as $$
declare
  v record;
  v_unfinished bigint;
  v_keys text[];
begin
  select s.id, s.name, r.* into v
  from sched.schedules s
  join sched.schedule_revisions r on r.schedule_id = s.id and r.revision = s.revision
  where s.name = p_schedule and s.retired_at is null;
  if not found then
    outcome := 'not_found';
    return next;
    return;
  end if;
  if v.overlap <> 'allow' then
    v_keys := array[sched.overlap_key(v.id)];
  end if;
  if v.limit_key is not null then
    v_keys := v_keys || v.limit_key;
  end if;
  perform sched.lock_keys(v_keys);
  select count(*) into v_unfinished
  from sched.jobs j
  where j.schedule_id = v.id and j.origin <> 'backfill' and j.status in ('scheduled', 'waiting', 'pending', 'running');
  if (v.overlap = 'skip' and v_unfinished > 0) or (v.overlap = 'queue_one' and v_unfinished > 1) then
    outcome := 'overlap';
    return next;
    return;
  end if;

  insert into sched.jobs (job_type, run, payload, status, waiting_for, origin, queue, priority, max_attempts, timeout,
                          retry_base, retry_max, retry_jitter, schedule_id, schedule, revision, overlap_key, limit_key)
  values (v.job_type, v.run, v.payload, case when v_keys is null then 'pending' else 'waiting' end, v_keys[1],
          'manual', v.queue, v.priority, v.max_attempts, v.timeout, v.retry_base, v.retry_max, v.retry_jitter,
          v.id, v.name, v.revision, case when v.overlap <> 'allow' then v_keys[1] end, v.limit_key)
  returning jobs.id into job_id;
  insert into sched.events (kind, schedule_id, job_id, actor, reason)
  values ('triggered', v.id, job_id, p_actor, p_reason);
  perform sched.admit(v_keys);
  if v_keys is null then
    perform sched.wake(array[v.queue]);
  end if;
  outcome := 'enqueued';
  return next;
end
$$;

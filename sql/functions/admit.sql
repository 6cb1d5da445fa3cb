-- Slots: overlap policies and limits are one mechanism. A keyed job waits (status waiting, waiting_for = key) until
-- its key has a free slot, first for the overlap slot of its schedule, then for its limit; it holds a slot from
-- admission until it is final or held, backoff included. Lock order: limits by key, then jobs.

-- Jobs next in line for the free slots of these overlap keys; call with the keys locked.
create or replace function sched.overlap_candidates(p_keys text[])
returns table (id bigint, limit_key text)
language sql volatile as $$
  select c.id, c.limit_key
  from sched.limits l
  cross join lateral (
    select j.id, j.limit_key
    from sched.jobs j
    where j.status = 'waiting' and j.waiting_for = l.key
    order by j.priority, j.wait_order, j.id
    limit greatest(0, l.slots - (select count(*) from sched.jobs h where h.overlap_key = l.key and h.holds_overlap))
  ) c
  where l.key = any (p_keys) and l.key like '$%'
$$;

-- Jobs next in line for the free slots of these limits; call with the keys locked.
create or replace function sched.limit_candidates(p_keys text[])
returns table (id bigint)
language sql volatile as $$
  select c.id
  from sched.limits l
  cross join lateral (
    select j.id
    from sched.jobs j
    where j.status = 'waiting' and j.waiting_for = l.key
    order by j.priority, j.wait_order, j.id
    limit greatest(0, l.slots - (select count(*) from sched.jobs h where h.limit_key = l.key and h.holds_limit))
  ) c
  where l.key = any (p_keys) and l.key not like '$%'
$$;

-- Give the free slots of these keys to the jobs next in line; returns how many became pending. Whoever adds a keyed
-- job or frees a slot calls this in the same transaction; the reaper repeats it, so that no crash strands a job.
create or replace function sched.admit(p_keys text[]) returns integer
language plpgsql volatile as $$
declare
  v_limits text[];
  v_queues text[];
  v_limited text[];
begin
  if coalesce(cardinality(p_keys), 0) = 0 then
    return 0;
  end if;
  perform 1 from sched.limits l where l.key = any (p_keys) and l.key like '$%' order by l.key for update;
  select array_agg(k) into v_limits
  from (
    select unnest(p_keys) as k
    union
    select c.limit_key from sched.overlap_candidates(p_keys) c where c.limit_key is not null
  ) wanted
  where k not like '$%';
  perform sched.lock_keys(v_limits);

  with admitted as (
    update sched.jobs j
    set holds_overlap = true,
        waiting_for = j.limit_key,
        status = case when j.limit_key is null then 'pending' else 'waiting' end
    where j.id in (select c.id from sched.overlap_candidates(p_keys) c)
    returning j.queue, j.status
  )
  select array_agg(a.queue) filter (where a.status = 'pending') into v_queues from admitted a;

  if v_limits is not null then
    with admitted as (
      update sched.jobs j
      set holds_limit = true, waiting_for = null, status = 'pending'
      where j.id in (select c.id from sched.limit_candidates(v_limits) c)
      returning j.queue
    )
    select array_agg(a.queue) into v_limited from admitted a;
  end if;
  v_queues := v_queues || v_limited;
  if v_queues is not null then
    perform sched.wake(v_queues);
  end if;
  return coalesce(cardinality(v_queues), 0);
end
$$;

-- Where a job stands when it enters the queue without a slot: it waits for its overlap slot, then its limit.
create or replace function sched.first_key(p_overlap_key text, p_limit_key text) returns text
language sql immutable parallel safe as $$ select coalesce(p_overlap_key, p_limit_key) $$;

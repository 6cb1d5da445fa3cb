-- The reaper: take over expired leases, withdraw those of jobs that were asked to cancel 30 s ago, and repeat
-- admission, so that no crash strands a job. Runs every second inside every worker, ticker and pg_cron host; one at
-- a time, the others return at once.
--
-- Its attempts are `lost` whatever becomes of the job: the worker that comes back must not take them for its own
-- settlement. A lost lease makes the job available at once the first time in a row, then with its backoff; at the
-- maximum of attempts it is dead. Returns one row of counts. Lock order: limits by key, then jobs by id. Index: jobs_running.
create or replace function sched.reap(p_by text default 'reaper')
returns table (is_busy boolean, retried integer, died integer, cancelled integer, admitted integer)
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  v_ids bigint[];
  v_keys text[];
  v_dead bigint[];
  v_queues text[];
begin
  retried := 0; died := 0; cancelled := 0; admitted := 0;
  is_busy := not pg_try_advisory_xact_lock(sched.pass_lock_key() + 1);
  if is_busy then
    return next;
    return;
  end if;

  select array_agg(e.id order by e.id) into v_ids
  from (
    select j.id from sched.jobs j
    where j.status = 'running'
      and (j.lease_expires_at <= clock_timestamp()
           or j.cancel_requested_at <= clock_timestamp() - interval '30 seconds')
    limit 1000
  ) e;
  if v_ids is not null then
    select array_agg(distinct k) into v_keys
    from sched.jobs j, unnest(array[j.overlap_key, j.limit_key]) as k
    where j.id = any (v_ids) and (j.holds_overlap or j.holds_limit) and k is not null;
    perform sched.lock_keys(v_keys);
    -- Rows held by a settling transaction are its own to decide: skipped, and looked at again at the next beat.
    select array_agg(e.id) into v_ids
    from (select j.id from sched.jobs j where j.id = any (v_ids) order by j.id for update skip locked) e;

    with expired as (
      select j.id, j.lease_owner, j.lease_token,
             case
               when j.cancel_requested_at is not null then 'cancelled'
               when j.attempt_count >= j.max_attempts then 'dead'
               when j.lost_in_a_row = 0 then 'pending'
               else 'scheduled'
             end as next_status,
             case when j.cancel_requested_at is not null then 'cancelled: it was asked to stop and did not in time'
                  else 'lease expired: its worker died or stalled' end as error
      from sched.jobs j
      where j.id = any (v_ids) and j.status = 'running'
        and (j.lease_expires_at <= clock_timestamp()
             or j.cancel_requested_at <= clock_timestamp() - interval '30 seconds')
    ), taken as (
      update sched.jobs j
      set status = e.next_status, last_error = e.error, lost_in_a_row = j.lost_in_a_row + 1,
          available_at = case e.next_status
            when 'pending' then clock_timestamp()
            when 'scheduled' then clock_timestamp()
              + sched.retry_delay(j.attempt_count, j.retry_base, j.retry_max, j.retry_jitter)
            else j.available_at end,
          completed_at = case when e.next_status in ('dead', 'cancelled') then clock_timestamp() end,
          holds_overlap = j.holds_overlap and e.next_status in ('pending', 'scheduled'),
          holds_limit = j.holds_limit and e.next_status in ('pending', 'scheduled'),
          lease_owner = null, lease_token = null, lease_expires_at = null
      from expired e
      where j.id = e.id
      returning j.id, j.status, j.queue, j.attempt_count, j.started_at, e.lease_owner, e.lease_token, e.error
    ), tried as (
      insert into sched.attempts (job_id, number, worker, lease_token, started_at, ended_at, outcome, error)
      select t.id, t.attempt_count, t.lease_owner, t.lease_token, t.started_at, clock_timestamp(),
             'lost', t.error
      from taken t
    )
    select count(*) filter (where t.status in ('pending', 'scheduled')),
           count(*) filter (where t.status = 'dead'),
           count(*) filter (where t.status = 'cancelled'),
           array_agg(t.id) filter (where t.status = 'dead'),
           array_agg(distinct t.queue) filter (where t.status = 'pending')
    into retried, died, cancelled, v_dead, v_queues
    from taken t;
    perform sched.bury(v_dead);
    if v_queues is not null then
      perform sched.wake(v_queues);
    end if;
  end if;
  admitted := sched.admit(sched.admissible_keys());
  perform sched.watch(p_by);
  return next;
end
$$;

-- Keys that have both a waiting job and a free slot. Walks the distinct keys of jobs_waiting_order one by one, so
-- that 100,000 jobs behind one full limit cost one step.
create or replace function sched.admissible_keys() returns text[]
language sql volatile as $$
  with recursive keys as (
    (select j.waiting_for as key from sched.jobs j where j.status = 'waiting' order by j.waiting_for limit 1)
    union all
    select (select j.waiting_for from sched.jobs j
            where j.status = 'waiting' and j.waiting_for > k.key order by j.waiting_for limit 1)
    from keys k
    where k.key is not null
  )
  select array_agg(k.key)
  from keys k
  join sched.limits l on l.key = k.key
  where l.slots > case
    when k.key like '$%' then (select count(*) from sched.jobs h where h.overlap_key = k.key and h.holds_overlap)
    else (select count(*) from sched.jobs h where h.limit_key = k.key and h.holds_limit) end
$$;

-- Firing: turn due occurrences into jobs, and give every other one an outcome with a reason. All policies live here,
-- because `sched tick` and pg_cron host the same function. Time arithmetic does not: occurrences come planned.

-- Planned occurrences that are due and can be decided. Left out are dates inside an open pause that keeps them, and
-- late dates of `catchup: latest` until the schedule is planned up to now. is_ordered: the fate of the date may depend
-- on that of an earlier one. Inlined into the reads of due_batch.
create or replace function sched.decidable(p_now timestamptz)
returns table (schedule_id integer, logical_date timestamptz, due_at timestamptz, is_ordered boolean)
language sql stable as $$
  select o.schedule_id, o.logical_date, o.due_at,
         p_now - o.due_at > r.grace or r.overlap in ('skip', 'queue_one', 'cancel_running')
  from sched.occurrences o
  join sched.schedules s on s.id = o.schedule_id
  join sched.schedule_revisions r on r.schedule_id = o.schedule_id and r.revision = o.revision
  where o.state = 'planned'
    and o.due_at <= p_now
    and (p_now - o.due_at <= r.grace or r.catchup <> 'latest' or p_now - o.due_at > r.max_age
         or s.planned_until >= p_now)
    and not exists (
      select from sched.pauses p
      where p.schedule_id = o.schedule_id and p.keep
        and p.from_at <= o.due_at and (p.until_at is null or p.until_at > p_now)
    )
$$;

-- The next occurrences to decide, at most p_limit, as parallel arrays; null when nothing can be decided. A backlog
-- larger than that never makes fresh dates late: of those whose fate does not depend on their order the newest due
-- come first, then the oldest of all. Both reads walk occurrences_due.
create or replace function sched.due_batch(
  p_now timestamptz, p_limit integer, out schedule_ids integer[], out logical_dates timestamptz[]
)
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
declare
  v_due_ats timestamptz[];
  v_are_ordered boolean[];
begin
  if not exists (select from sched.occurrences o where o.state = 'planned' and o.due_at <= p_now) then
    return;
  end if;
  select array_agg(d.schedule_id), array_agg(d.logical_date), array_agg(d.due_at), array_agg(d.is_ordered)
  into schedule_ids, logical_dates, v_due_ats, v_are_ordered
  from (
    select f.* from sched.decidable(p_now) f
    order by f.due_at, f.schedule_id, f.logical_date
    limit p_limit
  ) d;
  if cardinality(schedule_ids) < p_limit then
    return;
  end if;
  select array_agg(d.schedule_id), array_agg(d.logical_date) into schedule_ids, logical_dates
  from (
    select b.schedule_id, b.logical_date
    from (
      select o.* from unnest(schedule_ids, logical_dates, v_due_ats, v_are_ordered)
        as o (schedule_id, logical_date, due_at, is_ordered)
      union
      (select f.* from sched.decidable(p_now) f
       order by f.due_at desc, f.schedule_id desc, f.logical_date desc limit p_limit)
    ) b
    -- Dates whose fate depends on their order are only taken from the oldest end.
    order by b.is_ordered, b.due_at, b.schedule_id, b.logical_date
    limit p_limit
  ) d;
end
$$;

-- Whether a pause decides a date due then: pauses are judged by due_at, whenever the date is looked at.
create or replace function sched.is_paused(p_schedule_id integer, p_due_at timestamptz) returns boolean
language sql stable as $$
  select exists (
    select from sched.pauses p
    where p.schedule_id = p_schedule_id and not p.keep
      and p.from_at <= p_due_at and (p.until_at is null or p_due_at < p.until_at)
  )
$$;

-- Start of the first interval coalesced into the date p_before by earlier passes; null when there is none.
create or replace function sched.coalesced_from(p_schedule_id integer, p_before timestamptz) returns timestamptz
language sql stable as $$
  select min(o.interval_start)
  from sched.occurrences o
  where o.schedule_id = p_schedule_id
    and o.logical_date < p_before
    and o.state = 'missed' and o.reason = 'coalesced'
    and o.logical_date > coalesce((
      select e.logical_date
      from sched.occurrences e
      where e.schedule_id = p_schedule_id and e.logical_date < p_before
        and e.state <> 'planned' and e.reason is distinct from 'coalesced'
      order by e.logical_date desc
      limit 1), '-infinity')
$$;

-- What becomes of these planned occurrences: a row each, in the order in which they are due. reason is null for those
-- that fire; covers_from is the start of the first interval the job stands for, when earlier dates were coalesced into
-- it; takes_slot says that its schedule's overlap slot is free for it. Changes nothing.
--
-- One pipeline without joins between its steps: the planner cannot know how many rows they have, and nested loops
-- over 5,000 of them took 10 s where this takes 0.1.
create or replace function sched.fates(
  p_schedule_ids integer[], p_logical_dates timestamptz[], p_now timestamptz
) returns table (
  schedule_id integer, logical_date timestamptz, revision integer, interval_start timestamptz, key text, overlap text,
  reason text, covers_from timestamptz, takes_slot boolean
)
language sql volatile as $$
  with batch as (
    select o.schedule_id, o.logical_date, o.revision, o.due_at, o.interval_start, r.catchup, r.overlap,
           p_now - o.due_at > r.grace as is_late,
           p_now - o.due_at > r.max_age as is_too_old,
           sched.occurrence_key(r.key_template, s.name, o.logical_date, o.local_date, o.interval_start, o.generation)
             as key,
           row_number() over (partition by o.schedule_id order by o.due_at, o.logical_date) as nth
    from unnest(p_schedule_ids, p_logical_dates) as d (schedule_id, logical_date)
    cross join lateral (
      -- "offset 0" keeps this the inner side, looked up by its key, whatever the statistics say.
      select x.*
      from sched.occurrences x
      where x.schedule_id = d.schedule_id and x.logical_date = d.logical_date
      offset 0
    ) o
    join sched.schedules s on s.id = o.schedule_id
    join sched.schedule_revisions r on r.schedule_id = o.schedule_id and r.revision = o.revision
    where o.state = 'planned'
  ), by_time as (
    select b.*,
           case
             when exists (
               select from sched.pauses p
               where p.schedule_id = b.schedule_id and not p.keep
                 and p.from_at <= b.due_at and (p.until_at is null or b.due_at < p.until_at)
             ) then 'paused'
             when b.is_too_old then 'too_old'
             when not b.is_late or b.catchup = 'all' then null
             when b.catchup = 'none' then 'late'
             when exists (
               select from sched.occurrences n
               where n.schedule_id = b.schedule_id and n.logical_date > b.logical_date
                 and n.due_at <= p_now and n.state in ('planned', 'enqueued')
                 and not sched.is_paused(n.schedule_id, n.due_at)
             ) then 'coalesced'
           end as reason_of_time
    from batch b
  ), by_key as materialized (
    select t.*,
           coalesce(t.reason_of_time, case
             when exists (select from sched.jobs j where j.idempotency_key = t.key)
               or exists (select from sched.job_results k where k.key = t.key) then 'key_taken'
           end) as reason_so_far
    from by_time t
  ), counted as (
    -- What is unfinished of each schedule, counted once, at the first row it matters for: live jobs, those of them
    -- that wait for the overlap slot, and whether nobody has or wants that slot.
    select k.*,
           row_number() over (partition by k.schedule_id, k.reason_so_far is null order by k.nth) as place,
           case when k.overlap <> 'allow'
                 and row_number() over (partition by k.schedule_id, k.overlap = 'allow' order by k.nth) = 1 then (
             select array[
               count(*) filter (where j.origin <> 'backfill'),
               count(*) filter (where j.origin <> 'backfill' and j.status = 'waiting' and not j.holds_overlap),
               (count(*) filter (where j.holds_overlap or j.status = 'waiting') = 0)::integer]
             from sched.jobs j
             where j.schedule_id = k.schedule_id and j.status in ('scheduled', 'waiting', 'pending', 'running')
           ) end as counts
    from by_key k
  ), spread as (
    select c.*, max(c.counts) over (partition by c.schedule_id) as live
    from counted c
  ), by_overlap as (
    select s.*,
           case
             when s.reason_so_far is not null then s.reason_so_far
             when s.overlap = 'skip' and s.live[1] + s.place > 1 then 'overlap'
             when s.overlap = 'queue_one' and s.live[1] + s.place > 2 then 'overlap'
             when s.overlap = 'queue' and s.live[2] + s.place - s.live[3] > 1000 then 'overlap_full'
           end as reason
    from spread s
  ), stretched as (
    -- Dates coalesced in this pass, right before one that fires, belong to its stretch.
    select o.*,
           count(*) filter (where o.reason is distinct from 'coalesced')
             over (partition by o.schedule_id order by o.nth rows between unbounded preceding and 1 preceding)
             as stretch
    from by_overlap o
  )
  select t.schedule_id, t.logical_date, t.revision, t.interval_start, t.key, t.overlap, t.reason,
         case when t.reason is null and t.catchup = 'latest' then least(
           min(t.interval_start) filter (where t.reason = 'coalesced') over (partition by t.schedule_id, t.stretch),
           case when t.stretch = 0 and exists (
             select from sched.occurrences e
             where e.schedule_id = t.schedule_id and e.logical_date = t.interval_start and e.reason = 'coalesced'
           ) then sched.coalesced_from(t.schedule_id, t.logical_date) end)
         end,
         t.overlap <> 'allow' and t.place = 1 and t.live[3] = 1
  from stretched t
  order by t.due_at, t.schedule_id, t.logical_date
$$;

-- Decide these occurrences: jobs for those that fire, an outcome and a reason for the rest. Needs the pass lock.
-- Joins are done in the order they are written in and by key: with the statistics of an empty table, as after an
-- outage, the planner read 12 million rows for 5,000 dates of one schedule.
create or replace function sched.decide(
  p_schedule_ids integer[], p_logical_dates timestamptz[], p_now timestamptz, p_by text
) returns table (enqueued integer, skipped integer, missed integer)
language plpgsql volatile
set plan_cache_mode = force_custom_plan set join_collapse_limit = 1 set from_collapse_limit = 1
set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
  v_ids integer[];
  v_dates timestamptz[];
  v_revisions integer[];
  v_interval_starts timestamptz[];
  v_job_keys text[];
  v_overlaps text[];
  v_reasons text[];
  v_covers timestamptz[];
  v_takes_slot boolean[];
  v_keys text[];
  v_queues text[];
  v_cancelling integer[];
begin
  -- Overlap is decided under the key's lock, and read in later statements: a completion that is under way either
  -- commits first, or finds the new job waiting and admits it.
  perform sched.lock_keys(array(
    select sched.overlap_key(s) from (select distinct unnest(p_schedule_ids) as s) as schedules));

  select array_agg(f.schedule_id), array_agg(f.logical_date), array_agg(f.revision), array_agg(f.interval_start),
         array_agg(f.key), array_agg(f.overlap), array_agg(f.reason), array_agg(f.covers_from), array_agg(f.takes_slot)
  into v_ids, v_dates, v_revisions, v_interval_starts, v_job_keys, v_overlaps, v_reasons, v_covers, v_takes_slot
  from sched.fates(p_schedule_ids, p_logical_dates, p_now) f;

  with inserted as (
    insert into sched.jobs (
      job_type, run, payload, status, waiting_for, holds_overlap, origin, queue, priority, max_attempts, timeout,
      retry_base, retry_max, retry_jitter, idempotency_key, schedule_id, schedule, logical_date, generation,
      interval_start, interval_end, covers_from, revision, overlap_key, limit_key, wait_order)
    select r.job_type, r.run, r.payload, case when w.key is null then 'pending' else 'waiting' end, w.key,
           f.takes_slot, 'schedule', r.queue, r.priority, r.max_attempts, r.timeout,
           r.retry_base, r.retry_max, r.retry_jitter, f.key, f.schedule_id, s.name, f.logical_date, 1,
           f.interval_start, f.logical_date, f.covers_from, f.revision, k.overlap_key, r.limit_key,
           extract(epoch from f.logical_date)
    from unnest(v_ids, v_dates, v_revisions, v_interval_starts, v_job_keys, v_reasons, v_covers, v_takes_slot)
      as f (schedule_id, logical_date, revision, interval_start, key, reason, covers_from, takes_slot)
    join sched.schedules s on s.id = f.schedule_id
    join sched.schedule_revisions r on r.schedule_id = f.schedule_id and r.revision = f.revision
    cross join lateral (
      select case when r.overlap <> 'allow' then sched.overlap_key(f.schedule_id) end as overlap_key) k
    cross join lateral (
      select sched.first_key(case when not f.takes_slot then k.overlap_key end, r.limit_key) as key) w
    where f.reason is null
    on conflict do nothing
    returning status, queue, waiting_for
  )
  select array_agg(distinct i.waiting_for) filter (where i.waiting_for is not null),
         array_agg(distinct i.queue) filter (where i.status = 'pending')
  into v_keys, v_queues
  from inserted i;

  with recorded as (
    update sched.occurrences o
    set state = case when j.id is not null then 'enqueued'
                     when f.reason in ('paused', 'overlap', 'overlap_full') then 'skipped'
                     else 'missed' end,
        reason = case when j.id is null then coalesce(f.reason, 'key_taken') end,
        decided_at = p_now, decided_by = p_by, job_id = j.id
    from unnest(v_ids, v_dates, v_reasons) as f (schedule_id, logical_date, reason)
    left join sched.jobs j
      on f.reason is null and j.schedule_id = f.schedule_id and j.logical_date = f.logical_date and j.generation = 1
    where o.schedule_id = f.schedule_id and o.logical_date = f.logical_date and o.state = 'planned'
    returning o.state
  )
  select count(*) filter (where c.state = 'enqueued'), count(*) filter (where c.state = 'skipped'),
         count(*) filter (where c.state = 'missed')
  into enqueued, skipped, missed
  from recorded c;

  select array_agg(distinct f.schedule_id) into v_cancelling
  from unnest(v_ids, v_overlaps, v_reasons) as f (schedule_id, overlap, reason)
  where f.overlap = 'cancel_running' and f.reason is null;
  if v_cancelling is not null then
    v_keys := v_keys || sched.cancel_superseded(v_cancelling, p_now, p_by);
  end if;
  perform sched.admit(v_keys);
  if v_queues is not null then
    perform sched.wake(v_queues);
  end if;
  return next;
end
$$;

-- `overlap: cancel_running`: of each schedule only the newest live job goes on. Those not running are cancelled, a
-- running one is asked to stop (the reaper withdraws its lease after 30 s). Returns the keys whose slots came free.
create or replace function sched.cancel_superseded(p_schedule_ids integer[], p_now timestamptz, p_by text)
returns text[]
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_keys text[];
begin
  select array_agg(j.id order by j.id) into v_ids
  from sched.jobs j
  where j.schedule_id = any (p_schedule_ids)
    and j.status in ('scheduled', 'waiting', 'pending', 'running')
    and j.origin <> 'backfill'
    and j.logical_date < (
      select max(n.logical_date) from sched.jobs n
      where n.schedule_id = j.schedule_id and n.origin = 'schedule'
        and n.status in ('scheduled', 'waiting', 'pending', 'running'));
  perform sched.lock_keys(array(
    select k from sched.jobs j, unnest(array[j.overlap_key, j.limit_key]) as k
    where j.id = any (v_ids) and k is not null));
  perform 1 from sched.jobs j where j.id = any (v_ids) order by j.id for update;

  update sched.jobs j
  set cancel_requested_at = p_now
  where j.id = any (v_ids) and j.status = 'running' and j.cancel_requested_at is null;

  with cancelled as (
    update sched.jobs j
    set status = 'cancelled', completed_at = clock_timestamp(), waiting_for = null,
        holds_overlap = false, holds_limit = false, last_error = 'cancelled: a newer date of its schedule started'
    where j.id = any (v_ids) and j.status in ('scheduled', 'waiting', 'pending')
    returning j.id, j.schedule_id, j.logical_date, j.overlap_key, j.limit_key
  ), noted as (
    insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason)
    select 'job_cancelled', c.schedule_id, c.logical_date, c.id, p_by, 'overlap: cancel_running' from cancelled c
  )
  select array_agg(distinct k) into v_keys
  from cancelled c, unnest(array[c.overlap_key, c.limit_key]) as k
  where k is not null;
  return v_keys;
end
$$;

-- One pass: decide what is due, at most p_limit occurrences, in one transaction. Only one pass runs per database;
-- a second one returns outcome `busy` at once and changes nothing. When a pass fails it is repeated schedule by
-- schedule; the dates of a schedule that fails again become `missed (error)`, and the others fire.
--
-- Returns one row: outcome (`fired`, `idle` or `busy`), counts, whether more is due right now, the next
-- due_at, and the moment it decided by.
-- p_now is passed only by tests, simulation and the owner.
create or replace function sched.fire(
  p_now timestamptz default clock_timestamp(), p_limit integer default 5000, p_by text default 'fire'
) returns table (
  outcome text, enqueued integer, skipped integer, missed integer, is_more_due boolean, next_due_at timestamptz,
  decided_at timestamptz
)
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
declare
  v_schedule_ids integer[];
  v_logical_dates timestamptz[];
  v_error text;
  v_sqlstate text;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'sched.fire needs isolation level read committed, not %', current_setting('transaction_isolation')
      using errcode = 'feature_not_supported';
  end if;
  enqueued := 0; skipped := 0; missed := 0; is_more_due := false; decided_at := p_now;
  if not sched.try_pass_lock() then
    outcome := 'busy';
    return next;
    return;
  end if;

  select b.schedule_ids, b.logical_dates into v_schedule_ids, v_logical_dates from sched.due_batch(p_now, p_limit) b;
  outcome := case when v_schedule_ids is null then 'idle' else 'fired' end;
  if v_schedule_ids is not null then
    is_more_due := cardinality(v_schedule_ids) >= p_limit;
    begin
      select d.enqueued, d.skipped, d.missed into enqueued, skipped, missed
      from sched.decide(v_schedule_ids, v_logical_dates, p_now, p_by) d;
    exception when others then
      get stacked diagnostics v_error = message_text, v_sqlstate = returned_sqlstate;
      if sched.is_transient(v_sqlstate) then
        raise;
      end if;
      select d.enqueued, d.skipped, d.missed into enqueued, skipped, missed
      from sched.decide_one_by_one(v_schedule_ids, v_logical_dates, p_now, p_by) d;
    end;
  end if;

  update sched.state s set last_pass_at = p_now
  where s.last_pass_at is null or s.last_pass_at > p_now or s.last_pass_at < p_now - interval '10 seconds';
  select min(o.due_at) into next_due_at from sched.occurrences o where o.state = 'planned' and o.due_at > p_now;
  return next;
end
$$;

-- The fallback of a failed pass: each schedule in its own subtransaction.
create or replace function sched.decide_one_by_one(
  p_schedule_ids integer[], p_logical_dates timestamptz[], p_now timestamptz, p_by text
) returns table (enqueued integer, skipped integer, missed integer)
language plpgsql volatile as $$
declare
  v_schedule record;
  v_counts record;
  v_failed integer;
  v_error text;
  v_sqlstate text;
begin
  enqueued := 0; skipped := 0; missed := 0;
  for v_schedule in
    select d.schedule_id as id, array_agg(d.schedule_id) as ids, array_agg(d.logical_date) as dates
    from unnest(p_schedule_ids, p_logical_dates) as d (schedule_id, logical_date)
    group by d.schedule_id
    order by d.schedule_id
  loop
    begin
      select d.* into v_counts from sched.decide(v_schedule.ids, v_schedule.dates, p_now, p_by) d;
      enqueued := enqueued + v_counts.enqueued;
      skipped := skipped + v_counts.skipped;
      missed := missed + v_counts.missed;
    exception when others then
      get stacked diagnostics v_error = message_text, v_sqlstate = returned_sqlstate;
      if sched.is_transient(v_sqlstate) then
        raise;
      end if;
      update sched.occurrences o
      set state = 'missed', reason = 'error', decided_at = p_now, decided_by = p_by
      where o.schedule_id = v_schedule.id and o.logical_date = any (v_schedule.dates) and o.state = 'planned';
      get diagnostics v_failed = row_count;
      missed := missed + v_failed;
      insert into sched.events (kind, schedule_id, actor, reason, details)
      values ('fire_failed', v_schedule.id, p_by, left(v_error, 1000),
              jsonb_build_object('sqlstate', v_sqlstate, 'logical_dates', to_jsonb(v_schedule.dates)));
    end;
  end loop;
  return next;
end
$$;

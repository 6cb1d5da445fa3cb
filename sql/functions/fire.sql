-- Firing: turn due occurrences into jobs, and give every other one an outcome with a reason. All policies live here,
-- because `sched tick` and pg_cron host the same function. Time arithmetic does not: occurrences come planned.

-- When the oldest planned occurrence became due; null when none is. A session that holds an old snapshot keeps the index
-- entries of all dates fired since, and finding the first planned one means walking over them. So a walk that was slow
-- is taken note of, and the next one begins where it ended. Whoever writes an older date lowers the note (sched.plan),
-- and none is taken while somebody may be about to commit one.
create or replace function sched.first_due(p_now timestamptz) returns timestamptz
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
declare
  v_begin constant timestamptz := coalesce((select s.nothing_due_before from sched.state s), '-infinity');
  v_started constant timestamptz := clock_timestamp();
  v_first timestamptz := sched.first_planned(v_begin, p_now);
begin
  if clock_timestamp() - v_started > interval '10 milliseconds' and sched.try_begin_lock() then
    -- From the note as it is now: a planner may have lowered it while this looked.
    v_first := sched.first_planned(
      coalesce((select s.nothing_due_before from sched.state s), '-infinity'), p_now);
    update sched.state s set nothing_due_before = coalesce(v_first, p_now);
  end if;
  return v_first;
end
$$;

create or replace function sched.first_planned(p_from timestamptz, p_until timestamptz) returns timestamptz
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
begin
  return (
    select min(o.due_at) from sched.occurrences o
    where o.state = 'planned' and o.due_at >= p_from and o.due_at <= p_until);
end
$$;

-- Planned occurrences due in [p_from, p_now] that can be decided. Left out are dates inside an open pause that keeps
-- them, and late dates of `catchup: latest` until the schedule is planned up to now. Inlined into the reads of due_batch.
create or replace function sched.decidable(p_now timestamptz, p_from timestamptz) returns setof sched.due_date
language sql stable as $$
  select o.schedule_id, o.logical_date, o.revision, o.due_at, o.interval_start, s.name,
         sched.occurrence_key(r.key_template, s.name, o.logical_date, o.local_date, o.interval_start, o.generation),
         r.catchup, r.overlap, r.limit_key, r.max_age, p_now - o.due_at > r.grace
  from sched.occurrences o
  join sched.schedules s on s.id = o.schedule_id
  join sched.schedule_revisions r on r.schedule_id = o.schedule_id and r.revision = o.revision
  where o.state = 'planned'
    and o.due_at >= p_from and o.due_at <= p_now
    and (p_now - o.due_at <= r.grace or r.catchup <> 'latest' or p_now - o.due_at > r.max_age
         or s.planned_until >= p_now)
    and not exists (
      select from sched.pauses p
      where p.schedule_id = o.schedule_id and p.keep
        and p.from_at <= o.due_at and (p.until_at is null or p.until_at > p_now)
    )
$$;

-- The next occurrences to decide, at most p_limit; null when nothing can be decided. A backlog larger than that never
-- makes fresh dates late: of those whose fate does not depend on their order the newest due come first, then the
-- oldest of all. The reads walk occurrences_due.
create or replace function sched.due_batch(p_now timestamptz, p_limit integer) returns sched.due_date[]
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
declare
  v_from constant timestamptz := sched.first_due(p_now);
  v_batch sched.due_date[];
  v_is_late boolean;
  v_last sched.due_date;
begin
  if v_from is null then
    return null;
  end if;
  select array_agg(d::sched.due_date), bool_or(d.is_late) into v_batch, v_is_late
  from (
    select f.* from sched.decidable(p_now, v_from) f
    order by f.due_at, f.schedule_id, f.logical_date
    limit p_limit
  ) d;
  if v_batch is null or cardinality(v_batch) < p_limit or not v_is_late then
    return v_batch;
  end if;
  v_last := v_batch[p_limit];
  return array(
    select b::sched.due_date
    from (
      select o.* from unnest(v_batch) as o
      union all
      (select f.* from sched.decidable(p_now, v_last.due_at) f
       where (f.due_at, f.schedule_id, f.logical_date) > (v_last.due_at, v_last.schedule_id, v_last.logical_date)
       order by f.due_at desc, f.schedule_id desc, f.logical_date desc limit p_limit)
    ) b
    -- Dates whose fate may depend on that of an earlier one are only taken from the oldest end.
    order by b.is_late or b.overlap in ('skip', 'queue_one', 'cancel_running'),
             b.due_at, b.schedule_id, b.logical_date
    limit p_limit);
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

-- Whether the date was coalesced, or will be once a pass comes to it, given that a later one fires.
create or replace function sched.is_coalesced(o sched.occurrences, p_now timestamptz) returns boolean
language sql stable as $$
  select case
    when o.state = 'missed' then o.reason = 'coalesced'
    when o.state = 'planned' then exists (
      select from sched.schedule_revisions r
      where r.schedule_id = o.schedule_id and r.revision = o.revision and r.catchup = 'latest'
        and p_now - o.due_at > r.grace and p_now - o.due_at <= r.max_age
        and not exists (
          select from sched.pauses p
          where p.schedule_id = o.schedule_id and p.from_at <= o.due_at
            and (p.until_at is null or p.until_at > case when p.keep then p_now else o.due_at end)))
    else false
  end
$$;

-- Start of the first interval that the date p_before stands for besides its own: those coalesced right before it. Null
-- when there is none.
create or replace function sched.coalesced_from(p_schedule_id integer, p_before timestamptz, p_now timestamptz)
returns timestamptz
language sql stable as $$
  select min(o.interval_start)
  from sched.occurrences o
  where o.schedule_id = p_schedule_id
    and o.logical_date < p_before
    and o.logical_date > coalesce((
      select e.logical_date
      from sched.occurrences e
      where e.schedule_id = p_schedule_id and e.logical_date < p_before and not sched.is_coalesced(e, p_now)
      order by e.logical_date desc
      limit 1), '-infinity')
$$;

-- What becomes of these planned occurrences: a row each, in the order in which they are due. reason is null for those
-- that fire; takes_slot says that its schedule's overlap slot is free for it. Changes nothing.
--
-- One pipeline without joins: the planner cannot know how many rows its steps have, and nested loops over 5,000 of
-- them took 10 s where this takes 0.03. "offset 0" keeps a look-up by key one, and a step from being computed twice.
create or replace function sched.fates(p_batch sched.due_date[], p_now timestamptz) returns setof sched.fate
language sql stable as $$
  with by_time as (
    select d.*,
           case
             when exists (
               select from sched.pauses p
               where p.schedule_id = d.schedule_id and not p.keep
                 and p.from_at <= d.due_at and (p.until_at is null or d.due_at < p.until_at)
               offset 0
             ) then 'paused'
             when p_now - d.due_at > d.max_age then 'too_old'
             when d.is_late and d.catchup = 'none' then 'late'
             when d.is_late and d.catchup = 'latest' and exists (
               select from sched.occurrences n
               where n.schedule_id = d.schedule_id and n.logical_date > d.logical_date
                 and n.due_at <= p_now and n.due_at >= p_now - d.max_age
                 -- What time makes of it, not whether it is decided already.
                 and (n.state in ('planned', 'enqueued') or n.reason in ('coalesced', 'overlap', 'overlap_full'))
                 and not sched.is_paused(n.schedule_id, n.due_at)
               offset 0
             ) then 'coalesced'
             when exists (select from sched.jobs j where j.idempotency_key = d.key offset 0)
               or exists (select from sched.job_results k where k.key = d.key offset 0) then 'key_taken'
           end as reason_so_far
    from unnest(p_batch) as d
    offset 0
  ), placed as (
    -- The place among those of its schedule that may fire, and among those of them that obey an overlap policy.
    select t.*,
           count(*) filter (where t.reason_so_far is null) over earlier as place,
           count(*) filter (where t.reason_so_far is null and t.overlap <> 'allow') over earlier as keyed_place
    from by_time t
    window earlier as (partition by t.schedule_id order by t.due_at, t.logical_date rows unbounded preceding)
  ), counted as (
    -- What is unfinished of each schedule, counted once, at the first row it matters for: live jobs, those of them
    -- that wait for the overlap slot, and whether nobody has or wants that slot.
    select p.*,
           max(case when p.keyed_place = 1 and p.overlap <> 'allow' and p.reason_so_far is null then (
             select array[
               count(*) filter (where j.origin <> 'backfill'),
               count(*) filter (where j.origin <> 'backfill' and j.status = 'waiting' and not j.holds_overlap),
               (count(*) filter (where j.holds_overlap or j.status = 'waiting') = 0)::integer]
             from sched.jobs j
             where j.schedule_id = p.schedule_id and j.status in ('scheduled', 'waiting', 'pending', 'running')
           ) end) over earlier as live
    from placed p
    window earlier as (partition by p.schedule_id order by p.due_at, p.logical_date rows unbounded preceding)
  ), by_overlap as (
    select c.*,
           case
             when c.reason_so_far is not null then c.reason_so_far
             when c.overlap = 'skip' and c.live[1] + c.place > 1 then 'overlap'
             when c.overlap = 'queue_one' and c.live[1] + c.place > 2 then 'overlap'
             when c.overlap = 'queue' and c.live[2] + c.place - c.live[3] > 1000 then 'overlap_full'
           end as reason
    from counted c
  )
  select o.schedule_id, o.logical_date, o.revision, o.interval_start, o.schedule, o.key, o.overlap, o.reason,
         o.reason is null and o.overlap <> 'allow' and o.place = 1 and o.live[3] = 1
  from by_overlap o
  order by o.due_at, o.schedule_id, o.logical_date
$$;

-- The keys whose slots these occurrences may take, or free by cancelling an earlier job.
create or replace function sched.keys_of(p_batch sched.due_date[]) returns text[]
language sql stable as $$
  select array(
    select k
    from unnest(p_batch) as d
    cross join unnest(array[case when d.overlap <> 'allow' then sched.overlap_key(d.schedule_id) end, d.limit_key]) as k
    where k is not null
    union all
    select k
    from sched.jobs j
    cross join unnest(array[j.overlap_key, j.limit_key]) as k
    where j.schedule_id = any (array(select d.schedule_id from unnest(p_batch) as d where d.overlap = 'cancel_running'))
      and j.status in ('scheduled', 'waiting', 'pending', 'running') and k is not null)
$$;

-- Decide these occurrences: an outcome and a reason for those that do not fire, then jobs for the rest, which may
-- stand for the former. Needs the pass lock. A key that somebody takes at this moment is a unique violation.
-- Joins are done in the order they are written in and by key: with the statistics of an empty table, as after an
-- outage, the planner read 12 million rows for 5,000 dates of one schedule.
-- So there is one plan whatever the statistics, and making it once a session saves a pass of 100 dates a quarter.
-- Each look-up has one index that can serve it: "decided_at is null" is not the predicate of occurrences_due.
create or replace function sched.decide(p_batch sched.due_date[], p_now timestamptz, p_by text)
returns table (enqueued integer, skipped integer, missed integer)
language plpgsql volatile
set plan_cache_mode = force_generic_plan set join_collapse_limit = 1 set from_collapse_limit = 1
set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_seqscan = off
set enable_bitmapscan = off set enable_memoize = off as $$
declare
  v_fates sched.fate[];
  v_keys text[];
  v_queues text[];
  v_cancelling integer[];
begin
  -- Overlap is decided under the key's lock, and read in later statements: a completion that is under way either
  -- commits first, or finds the new job waiting and admits it. All keys of this pass are taken here, before any job.
  perform sched.lock_keys(sched.keys_of(p_batch));
  v_fates := array(select f from sched.fates(p_batch, p_now) f);

  with recorded as (
    update sched.occurrences o
    set state = case when f.reason in ('paused', 'overlap', 'overlap_full') then 'skipped' else 'missed' end,
        reason = f.reason, decided_at = p_now, decided_by = p_by
    from unnest(v_fates) as f
    cross join lateral (
      select x.ctid from sched.occurrences x
      where x.schedule_id = f.schedule_id and x.logical_date = f.logical_date and x.decided_at is null
      offset 0
    ) found
    where f.reason is not null and o.ctid = found.ctid
    returning o.state
  )
  select count(*) filter (where r.state = 'skipped'), count(*) filter (where r.state = 'missed')
  into skipped, missed
  from recorded r;

  with inserted as (
    insert into sched.jobs (
      job_type, run, payload, status, waiting_for, holds_overlap, origin, queue, priority, max_attempts, timeout,
      retry_base, retry_max, retry_jitter, idempotency_key, schedule_id, schedule, logical_date, generation,
      interval_start, interval_end, covers_from, revision, overlap_key, limit_key, wait_order)
    select r.job_type, r.run, r.payload, case when w.key is null then 'pending' else 'waiting' end, w.key,
           f.takes_slot, 'schedule', r.queue, r.priority, r.max_attempts, r.timeout,
           r.retry_base, r.retry_max, r.retry_jitter, f.key, f.schedule_id, f.schedule, f.logical_date, 1,
           f.interval_start, f.logical_date, c.covers_from, f.revision, k.overlap_key, r.limit_key,
           date_part('epoch', f.logical_date)
    from unnest(v_fates) as f
    join sched.schedule_revisions r on r.schedule_id = f.schedule_id and r.revision = f.revision
    cross join lateral (
      select case when r.overlap <> 'allow' then sched.overlap_key(f.schedule_id) end as overlap_key) k
    cross join lateral (
      select sched.first_key(case when not f.takes_slot then k.overlap_key end, r.limit_key) as key) w
    cross join lateral (
      select case when r.catchup = 'latest' and exists (
        select from sched.occurrences e
        where e.schedule_id = f.schedule_id and e.logical_date = f.interval_start
          and (e.reason = 'coalesced' or e.state = 'planned')
        offset 0
      ) then sched.coalesced_from(f.schedule_id, f.logical_date, p_now) end as covers_from) c
    where f.reason is null
    returning id, schedule_id, logical_date, status, queue, waiting_for
  ), recorded as (
    update sched.occurrences o
    set state = 'enqueued', reason = null, decided_at = p_now, decided_by = p_by, job_id = i.id
    from inserted i
    where o.schedule_id = i.schedule_id and o.logical_date = i.logical_date and o.decided_at is null
  )
  select count(*),
         array_agg(distinct i.waiting_for) filter (where i.waiting_for is not null),
         array_agg(distinct i.queue) filter (where i.status = 'pending')
  into enqueued, v_keys, v_queues
  from inserted i;

  select array_agg(distinct f.schedule_id) into v_cancelling
  from unnest(v_fates) as f
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

-- `overlap: cancel_running`: of each schedule only the newest live job goes on; triggered ones count too. Those not
-- running are cancelled, a running one is asked to stop (the reaper withdraws its lease after 30 s). Call with the keys
-- of all of them locked. Returns the keys whose slots came free.
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
    and exists (
      select from sched.jobs n
      where n.schedule_id = j.schedule_id and n.origin = 'schedule'
        and n.status in ('scheduled', 'waiting', 'pending', 'running')
        and (n.logical_date > j.logical_date or j.logical_date is null and n.id > j.id));
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
-- Without jit: costs of plans that are switched off look high enough for it, and compiling took 33 ms a pass.
-- p_now is passed only by tests, simulation and the owner.
create or replace function sched.fire(
  p_now timestamptz default clock_timestamp(), p_limit integer default 5000, p_by text default 'fire'
) returns table (
  outcome text, enqueued integer, skipped integer, missed integer, is_more_due boolean, next_due_at timestamptz,
  decided_at timestamptz
)
language plpgsql volatile set plan_cache_mode = force_custom_plan set jit = off as $$
declare
  v_batch sched.due_date[];
  v_sqlstate text;
begin
  perform sched.need_read_committed('sched.fire');
  enqueued := 0; skipped := 0; missed := 0; is_more_due := false; decided_at := p_now;
  if not sched.try_pass_lock() then
    outcome := 'busy';
    return next;
    return;
  end if;

  v_batch := sched.due_batch(p_now, p_limit);
  outcome := case when v_batch is null then 'idle' else 'fired' end;
  if v_batch is not null then
    is_more_due := cardinality(v_batch) >= p_limit;
    begin
      select d.enqueued, d.skipped, d.missed into enqueued, skipped, missed
      from sched.decide(v_batch, p_now, p_by) d;
    exception when others then
      get stacked diagnostics v_sqlstate = returned_sqlstate;
      if sched.is_transient(v_sqlstate) then
        raise;
      end if;
      select d.enqueued, d.skipped, d.missed into enqueued, skipped, missed
      from sched.decide_one_by_one(v_batch, p_now, p_by) d;
    end;
  end if;

  perform sched.note_ended_horizons(p_now, p_by);
  update sched.state s set last_pass_at = p_now
  where s.last_pass_at is null or s.last_pass_at > p_now or s.last_pass_at < p_now - interval '10 seconds';
  select min(o.due_at) into next_due_at from sched.occurrences o where o.state = 'planned' and o.due_at > p_now;
  return next;
end
$$;

-- The fallback of a failed pass: each schedule in its own subtransaction. Of dates that share a key all but the first
-- have a turn of their own, in which the key is found taken; a key that somebody took meanwhile is found the next time.
create or replace function sched.decide_one_by_one(p_batch sched.due_date[], p_now timestamptz, p_by text)
returns table (enqueued integer, skipped integer, missed integer)
language plpgsql volatile as $$
declare
  v_schedule record;
  v_counts record;
  v_failed integer;
  v_error text;
  v_sqlstate text;
begin
  enqueued := 0; skipped := 0; missed := 0;
  perform sched.lock_keys(sched.keys_of(p_batch));  -- what the failed attempt had taken is free again
  for v_schedule in
    select (t.d).schedule_id as id, array_agg(t.d) as batch, array_agg((t.d).logical_date) as dates
    from (
      select d, row_number() over (partition by d.schedule_id, d.key order by d.due_at, d.logical_date) as turn
      from unnest(p_batch) as d
    ) t
    group by (t.d).schedule_id, t.turn
    order by (t.d).schedule_id, t.turn
  loop
    for v_tries in 1..3 loop
      begin
        select d.* into v_counts from sched.decide(v_schedule.batch, p_now, p_by) d;
        enqueued := enqueued + v_counts.enqueued;
        skipped := skipped + v_counts.skipped;
        missed := missed + v_counts.missed;
        exit;
      exception when others then
        get stacked diagnostics v_error = message_text, v_sqlstate = returned_sqlstate;
        if sched.is_transient(v_sqlstate) then
          raise;
        end if;
        continue when v_sqlstate = '23505' and v_tries < 3;
        update sched.occurrences o
        set state = 'missed', reason = 'error', decided_at = p_now, decided_by = p_by
        where o.schedule_id = v_schedule.id and o.logical_date = any (v_schedule.dates) and o.state = 'planned';
        get diagnostics v_failed = row_count;
        missed := missed + v_failed;
        insert into sched.events (kind, schedule_id, actor, reason, details)
        values ('fire_failed', v_schedule.id, p_by, left(v_error, 1000),
                jsonb_build_object('sqlstate', v_sqlstate, 'logical_dates', to_jsonb(v_schedule.dates)));
        exit;
      end;
    end loop;
  end loop;
  return next;
end
$$;

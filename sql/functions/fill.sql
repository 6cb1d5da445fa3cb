-- Backfill: fill gaps with jobs, and steer what was filled. A backfill is a row of sched.backfills.

-- Fill gaps: make the jobs of a backfill for these logical dates and record them as enqueued, in one step. Dates whose
-- row is in a state not listed in p_states are left alone (`planned` means planned and late); `enqueued` among them
-- makes a new generation of dates whose job has ended. Returns one row per date: `inserted`, `already`, `unfinished`
-- (a job of that date still runs or waits) or `key_taken`. What was decided before is kept in events.
--
-- Takes the pass lock, so a date is never decided by a pass and a backfill at once. Jobs queue for their schedule's
-- overlap slot, or with p_is_overlap_allowed for the backfill's own slots (max_active).
create or replace function sched.fill(
  p_backfill_id bigint, p_states text[],
  p_ids integer[], p_revisions integer[], p_logical_dates timestamptz[], p_due_ats timestamptz[],
  p_walls timestamp[], p_folds boolean[], p_local_dates date[], p_interval_starts timestamptz[],
  p_now timestamptz default clock_timestamp()
) returns table (schedule_id integer, logical_date timestamptz, outcome text)
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  b sched.backfills;
  v_own_key text;
  v_keys text[];
  v_queues text[];
  v_outcomes text[];
  v_generations smallint[];
  v_states text[];
  v_reasons text[];
  v_decided timestamptz[];
  v_filled_ids integer[];
  v_filled_dates timestamptz[];
  v_job_ids bigint[];
begin
  perform sched.take_pass_lock();
  select f.* into strict b from sched.backfills f where f.id = p_backfill_id for update;
  if b.status = 'cancelled' then
    raise exception 'backfill % was cancelled', p_backfill_id using errcode = 'object_not_in_prerequisite_state';
  end if;
  if b.max_active is not null then
    v_own_key := '$backfill-' || b.id;
    insert into sched.limits (key, slots) values (v_own_key, b.max_active) on conflict do nothing;
  end if;
  select array_agg(distinct k), array_agg(distinct r.queue) into v_keys, v_queues
  from unnest(p_ids, p_revisions) as d (schedule_id, revision)
  join sched.schedule_revisions r on r.schedule_id = d.schedule_id and r.revision = d.revision
  cross join unnest(array[
    case when r.overlap <> 'allow' and not b.is_overlap_allowed then sched.overlap_key(r.schedule_id)
         else v_own_key end,
    r.limit_key]) as k;
  v_keys := array_remove(v_keys, null);
  perform sched.lock_keys(v_keys);

  -- What can be filled, decided first and kept in arrays beside those of the parameters, so that each later step is
  -- one plain join by key: the planner cannot know how many rows a step before it has.
  select array_agg(d.outcome order by d.n), array_agg(d.generation order by d.n), array_agg(d.state order by d.n),
         array_agg(d.reason order by d.n), array_agg(d.decided_at order by d.n)
  into v_outcomes, v_generations, v_states, v_reasons, v_decided
  from (
    select a.n, o.state, o.reason, o.decided_at,
           (coalesce(o.generation, 1) + (coalesce(o.state, '') = 'enqueued')::integer)::smallint as generation,
           case
             when a.logical_date <= s.ledger_from then 'already'
             when o.state is null then
               case when a.wall is not null and exists (
                 select from sched.occurrences w
                 where w.schedule_id = a.schedule_id and w.wall = a.wall and w.fold = a.fold and w.revision = a.revision)
               then 'already' end
             when not o.state = any (p_states) or (o.state = 'planned' and o.due_at > p_now) then 'already'
             when o.state = 'enqueued' and exists (
               select from sched.jobs j
               where j.id = o.job_id and j.status in ('scheduled', 'waiting', 'pending', 'running', 'held'))
             then 'unfinished'
           end as outcome
    from unnest(p_ids, p_revisions, p_logical_dates, p_walls, p_folds)
      with ordinality as a (schedule_id, revision, logical_date, wall, fold, n)
    join sched.schedules s on s.id = a.schedule_id
    left join sched.occurrences o on o.schedule_id = a.schedule_id and o.logical_date = a.logical_date
  ) d;

  insert into sched.jobs (
    job_type, run, payload, status, waiting_for, origin, queue, priority, max_attempts, timeout, retry_base,
    retry_max, retry_jitter, idempotency_key, schedule_id, schedule, logical_date, generation, interval_start,
    interval_end, revision, backfill_id, overlap_key, limit_key, wait_order)
  select r.job_type, r.run, r.payload || coalesce(b.payload, '{}'),
         case when w.key is null then 'pending' else 'waiting' end, w.key, 'backfill', r.queue, b.priority,
         r.max_attempts, r.timeout, r.retry_base, r.retry_max, r.retry_jitter, k.key, s.id, s.name, d.logical_date,
         d.generation, d.interval_start, d.logical_date, d.revision, b.id, w.overlap_key, r.limit_key,
         extract(epoch from d.logical_date) * case when b.is_descending then -1 else 1 end
  from unnest(p_ids, p_revisions, p_logical_dates, p_local_dates, p_interval_starts, v_outcomes, v_generations)
    as d (schedule_id, revision, logical_date, local_date, interval_start, outcome, generation)
  join sched.schedules s on s.id = d.schedule_id
  join sched.schedule_revisions r on r.schedule_id = d.schedule_id and r.revision = d.revision
  cross join lateral (
    select sched.occurrence_key(r.key_template, s.name, d.logical_date, d.local_date, d.interval_start, d.generation)
      as key) k
  cross join lateral (
    select o.overlap_key, sched.first_key(o.overlap_key, r.limit_key) as key
    from (select case when r.overlap <> 'allow' and not b.is_overlap_allowed then sched.overlap_key(s.id)
                      else v_own_key end as overlap_key) o) w
  where d.outcome is null and not exists (select from sched.job_results x where x.key = k.key)
  order by case when b.is_descending then d.logical_date end desc, d.logical_date, d.schedule_id
  on conflict do nothing;

  with recorded as (
    insert into sched.occurrences as t (
      schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start, generation,
      state, reason, decided_at, decided_by, job_id)
    select d.schedule_id, d.revision, d.logical_date, d.due_at, d.wall, d.fold, d.local_date, d.interval_start,
           d.generation, 'enqueued', 'backfill', p_now, b.actor, j.id
    from unnest(p_ids, p_revisions, p_logical_dates, p_due_ats, p_walls, p_folds, p_local_dates, p_interval_starts,
                v_outcomes, v_generations)
      as d (schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start, outcome, generation)
    join sched.jobs j
      on j.schedule_id = d.schedule_id and j.logical_date = d.logical_date and j.generation = d.generation
    where d.outcome is null and j.backfill_id = b.id
    on conflict on constraint occurrences_pkey do update
    set state = 'enqueued', reason = 'backfill', decided_at = p_now, decided_by = b.actor,
        job_id = excluded.job_id, generation = excluded.generation
    returning t.schedule_id, t.logical_date, t.job_id
  )
  select array_agg(r.schedule_id), array_agg(r.logical_date), array_agg(r.job_id)
  into v_filled_ids, v_filled_dates, v_job_ids
  from recorded r;

  insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason, details)
  select case when d.state = 'enqueued' then 'superseded' else 'backfilled' end, d.schedule_id, d.logical_date,
         f.job_id, b.actor, d.reason,
         jsonb_build_object('was', d.state, 'decided_at', d.decided_at, 'backfill', b.id)
  from unnest(p_ids, p_logical_dates, v_states, v_reasons, v_decided)
    as d (schedule_id, logical_date, state, reason, decided_at)
  join unnest(v_filled_ids, v_filled_dates, v_job_ids) as f (schedule_id, logical_date, job_id)
    on f.schedule_id = d.schedule_id and f.logical_date = d.logical_date
  where d.state is not null;

  if b.status = 'paused' then
    perform sched.hold_backfill(b.id);
  end if;
  perform sched.admit(v_keys);
  perform sched.wake(v_queues);
  return query
  select d.schedule_id, d.logical_date,
         case when f.schedule_id is not null then 'inserted' else coalesce(d.outcome, 'key_taken') end
  from unnest(p_ids, p_logical_dates, v_outcomes) as d (schedule_id, logical_date, outcome)
  left join unnest(v_filled_ids, v_filled_dates) as f (schedule_id, logical_date)
    on f.schedule_id = d.schedule_id and f.logical_date = d.logical_date;
end
$$;

-- Hold what has not started of a backfill; returns how many jobs. Lock order: limits by key, then jobs by id.
create or replace function sched.hold_backfill(p_id bigint) returns integer
language plpgsql volatile as $$
declare
  v_held integer;
begin
  perform 1 from sched.jobs j
  where j.backfill_id = p_id and j.status in ('scheduled', 'waiting', 'pending') order by j.id for update;
  update sched.jobs j
  set status = 'held', held_by = 'backfill', waiting_for = null, holds_overlap = false, holds_limit = false
  where j.backfill_id = p_id and j.status in ('scheduled', 'waiting', 'pending');
  get diagnostics v_held = row_count;
  return v_held;
end
$$;

-- The keys whose slots jobs of a backfill use, locked.
create or replace function sched.lock_backfill(p_id bigint) returns text[]
language plpgsql volatile as $$
declare
  v_keys text[];
begin
  select array_agg(distinct k) into v_keys
  from sched.jobs j, unnest(array[j.overlap_key, j.limit_key]) as k
  where j.backfill_id = p_id and j.status in ('scheduled', 'waiting', 'pending', 'held') and k is not null;
  perform sched.lock_keys(v_keys);
  return v_keys;
end
$$;

-- Pause, resume or cancel a backfill (p_action): jobs that have not started are held, released or cancelled; running
-- ones go on. Outcome: the new status, the unchanged one when the action does not apply, or `not_found`.
create or replace function sched.steer_backfill(p_id bigint, p_action text, p_actor text, p_reason text default null)
returns table (outcome text, jobs integer)
language plpgsql volatile as $$
declare
  v_status text;
  v_keys text[];
begin
  perform sched.take_pass_lock();
  jobs := 0;
  select b.status into v_status from sched.backfills b where b.id = p_id for update;
  if v_status is null then
    outcome := 'not_found';
    return next;
    return;
  end if;
  v_keys := sched.lock_backfill(p_id);
  if p_action = 'pause' and v_status in ('filling', 'filled') then
    jobs := sched.hold_backfill(p_id);
    v_status := 'paused';
  elsif p_action = 'resume' and v_status = 'paused' then
    jobs := sched.requeue(array(
      select j.id from sched.jobs j where j.backfill_id = p_id and j.status = 'held' and j.held_by = 'backfill'));
    v_status := 'filled';
  elsif p_action = 'cancel' and v_status <> 'cancelled' then
    update sched.jobs j
    set status = 'cancelled', held_by = null, completed_at = clock_timestamp(), waiting_for = null,
        holds_overlap = false, holds_limit = false, last_error = 'cancelled: its backfill was cancelled'
    where j.backfill_id = p_id and j.status in ('scheduled', 'waiting', 'pending', 'held');
    get diagnostics jobs = row_count;
    v_status := 'cancelled';
  else
    outcome := v_status;
    return next;
    return;
  end if;
  update sched.backfills b
  set status = v_status,
      completed_at = case when v_status in ('filled', 'cancelled') then coalesce(b.completed_at, clock_timestamp())
                          else b.completed_at end
  where b.id = p_id;
  insert into sched.events (kind, actor, reason, details)
  values ('backfill_' || p_action, p_actor, p_reason, jsonb_build_object('backfill', p_id, 'jobs', jobs));
  perform sched.admit(v_keys);
  outcome := v_status;
  return next;
end
$$;

-- Record a deliberate no: a date that will not be enqueued unless somebody asks for waived ones. Outcome `waived`,
-- `already_waived`, or `enqueued` (unchanged: what became a job cannot be waived).
create or replace function sched.waive(
  p_schedule_id integer, p_revision integer, p_logical_date timestamptz, p_due_at timestamptz, p_wall timestamp,
  p_fold boolean, p_local_date date, p_interval_start timestamptz, p_actor text, p_reason text
) returns text
language plpgsql volatile as $$
declare
  v_was record;
begin
  perform sched.take_pass_lock();
  select o.state, o.reason, o.decided_at into v_was
  from sched.occurrences o where o.schedule_id = p_schedule_id and o.logical_date = p_logical_date for update;
  if v_was.state in ('enqueued', 'waived') then
    return case v_was.state when 'waived' then 'already_waived' else 'enqueued' end;
  end if;
  insert into sched.occurrences as t (
    schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start,
    state, reason, decided_at, decided_by)
  values (p_schedule_id, p_revision, p_logical_date, p_due_at, p_wall, p_fold, p_local_date, p_interval_start,
          'waived', p_reason, clock_timestamp(), p_actor)
  on conflict on constraint occurrences_pkey do update
  set state = 'waived', reason = p_reason, decided_at = clock_timestamp(), decided_by = p_actor;
  insert into sched.events (kind, schedule_id, logical_date, actor, reason, details)
  values ('waived', p_schedule_id, p_logical_date, p_actor, p_reason,
          jsonb_build_object('was', v_was.state, 'reason', v_was.reason, 'decided_at', v_was.decided_at));
  return 'waived';
end
$$;

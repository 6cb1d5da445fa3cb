-- Backfill: fill gaps with jobs; pause, resume and cancel what was filled. A backfill is a row of sched.backfills.

-- The dates of a slice beside their rows, and why one cannot be filled (reason, else null): `already`, `unfinished` (a
-- job of that date still runs or waits) or `key_taken`. Rules are the revisions among them. Changes nothing. What would
-- break a unique key on insertion is looked for only with p_is_careful: a row where none was expected (no p_states), a
-- job of that key or date, two dates of one key.
--
-- "offset 0" keeps a look-up one by key, whatever the statistics say; "left join" tells the planner that all dates asked
-- for come out, so that sched.fill_slice hashes their revisions.
create or replace function sched.fillable(
  p_states text[], p_rule_ids integer[], p_rule_revisions integer[],
  p_ids integer[], p_revisions integer[], p_logical_dates timestamptz[], p_due_ats timestamptz[],
  p_walls timestamp[], p_folds boolean[], p_local_dates date[], p_interval_starts timestamptz[],
  p_now timestamptz, p_is_careful boolean
) returns table (
  schedule_id integer, revision integer, logical_date timestamptz, due_at timestamptz, wall timestamp, fold boolean,
  local_date date, interval_start timestamptz, schedule text, was text, was_reason text, was_decided_at timestamptz,
  generation smallint, key text, reason text
)
language sql stable as $$
  with rules as materialized (
    select r.schedule_id, r.revision, s.name, s.ledger_from, r.key_template
    from unnest(p_rule_ids, p_rule_revisions) as d (schedule_id, revision)
    join sched.schedules s on s.id = d.schedule_id
    join sched.schedule_revisions r on r.schedule_id = d.schedule_id and r.revision = d.revision
  )
  select a.schedule_id, a.revision, a.logical_date, a.due_at, a.wall, a.fold, k.local_date, k.interval_start, r.name,
         o.state, o.reason, o.decided_at, g.generation, k.key,
         case
           when r.name is null or a.logical_date <= r.ledger_from then 'already'
           when o.state is not null and o.state <> all (p_states) then 'already'
           when o.state = 'planned' and o.due_at > p_now then 'already'
           when o.state is null and a.wall is not null and (a.schedule_id, a.revision, a.wall, a.fold) in (
             select w.schedule_id, w.revision, w.wall, w.fold from sched.recorded_walls(p_ids, p_logical_dates) w)
           then 'already'
           when case when o.state = 'enqueued' then exists (
             select from sched.jobs j
             where j.id = o.job_id and j.status in ('scheduled', 'waiting', 'pending', 'running', 'held')
             offset 0) end
           then 'unfinished'
           when exists (select from sched.job_results x where x.key = k.key offset 0) then 'key_taken'
           when p_is_careful and (
             exists (select from sched.jobs j where j.idempotency_key = k.key offset 0)
             or exists (
               select from sched.jobs j
               where j.schedule_id = a.schedule_id and j.logical_date = a.logical_date and j.generation = g.generation
               offset 0))
           then 'key_taken'
         end
  from unnest(p_ids, p_revisions, p_logical_dates, p_due_ats, p_walls, p_folds, p_local_dates, p_interval_starts)
    as a (schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start)
  left join rules r on r.schedule_id = a.schedule_id and r.revision = a.revision
  left join lateral (
    select x.state, x.reason, x.due_at, x.decided_at, x.generation, x.job_id, x.local_date, x.interval_start
    from sched.occurrences x
    where (p_is_careful or p_states <> '{}') and x.schedule_id = a.schedule_id and x.logical_date = a.logical_date
    offset 0
  ) o on true
  cross join lateral (
    select (coalesce(o.generation, 1) + (o.state is not distinct from 'enqueued')::integer)::smallint as generation
  ) g
  cross join lateral (
    -- A row keeps the interval it was planned with.
    select sched.occurrence_key(
      r.key_template, r.name, a.logical_date, i.local_date, i.interval_start, g.generation) as key,
      i.local_date, i.interval_start
    from (select coalesce(o.local_date, a.local_date) as local_date,
                 coalesce(o.interval_start, a.interval_start) as interval_start) i
    offset 0
  ) k
$$;

-- The jobs and ledger rows of a slice, for sched.fill. Fails with unique_violation where a key is taken, unless
-- p_is_careful.
--
-- One statement in which every step reads what was asked: jobs get their ids there, so that no step has to look up or
-- join what another wrote.
create or replace function sched.fill_slice(
  b sched.backfills, p_own_key text, p_states text[], p_rule_ids integer[], p_rule_revisions integer[],
  p_ids integer[], p_revisions integer[], p_logical_dates timestamptz[], p_due_ats timestamptz[],
  p_walls timestamp[], p_folds boolean[], p_local_dates date[], p_interval_starts timestamptz[],
  p_now timestamptz, p_is_careful boolean,
  out filled integer, out left_ids integer[], out left_dates timestamptz[], out left_reasons text[]
)
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
declare
  v_at constant timestamptz := clock_timestamp();
begin
  with found as (
    select f.*,
           case when p_is_careful then row_number() over (partition by f.key, f.reason is null order by f.logical_date) > 1
                else false end as is_double
    from sched.fillable(
      p_states, p_rule_ids, p_rule_revisions, p_ids, p_revisions, p_logical_dates, p_due_ats, p_walls, p_folds,
      p_local_dates, p_interval_starts, p_now, p_is_careful) f
  ), asked as materialized (
    select f.*, f.reason is null and not f.is_double as is_free,
           case when f.reason is null and not f.is_double then nextval('sched.jobs_id_seq') end as job_id
    from found f
  ), made as (
    insert into sched.jobs (
      id, job_type, run, payload, status, waiting_for, origin, queue, priority, available_at, max_attempts, timeout,
      retry_base, retry_max, retry_jitter, idempotency_key, schedule_id, schedule, logical_date, generation,
      interval_start, interval_end, revision, backfill_id, overlap_key, limit_key, wait_order)
    overriding system value
    select a.job_id, r.job_type, r.run, case when b.payload is null then r.payload else r.payload || b.payload end,
           case when w.key is null then 'pending' else 'waiting' end, w.key, 'backfill', r.queue, b.priority, v_at,
           r.max_attempts, r.timeout, r.retry_base, r.retry_max, r.retry_jitter, a.key, a.schedule_id, a.schedule,
           a.logical_date, a.generation, a.interval_start, a.logical_date, a.revision, b.id, w.overlap_key,
           r.limit_key, date_part('epoch', a.logical_date) * case when b.is_descending then -1 else 1 end
    from asked a
    join sched.schedule_revisions r on r.schedule_id = a.schedule_id and r.revision = a.revision
    cross join lateral (
      select o.overlap_key, sched.first_key(o.overlap_key, r.limit_key) as key
      from (select case when r.overlap <> 'allow' and not b.is_overlap_allowed then sched.overlap_key(a.schedule_id)
                        else p_own_key end as overlap_key) o) w
    where a.is_free
  ), recorded as (
    insert into sched.occurrences (
      schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start, generation,
      state, reason, decided_at, decided_by, job_id)
    select a.schedule_id, a.revision, a.logical_date, a.due_at, a.wall, a.fold, a.local_date, a.interval_start,
           a.generation, 'enqueued', 'backfill', p_now, b.actor, a.job_id
    from asked a
    where a.is_free and a.was is null
  ), changed as (
    update sched.occurrences o
    set state = 'enqueued', reason = 'backfill', decided_at = p_now, decided_by = b.actor, job_id = a.job_id,
        generation = a.generation
    from asked a
    where a.is_free and a.was is not null and o.schedule_id = a.schedule_id and o.logical_date = a.logical_date
  ), noted as (
    insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason, details)
    select case when a.was = 'enqueued' then 'superseded' else 'backfilled' end, a.schedule_id, a.logical_date,
           a.job_id, b.actor, a.was_reason,
           jsonb_build_object('was', a.was, 'decided_at', a.was_decided_at, 'backfill', b.id)
    from asked a
    where a.is_free and a.was is not null
  )
  select count(*) filter (where a.is_free),
         array_agg(a.schedule_id) filter (where not a.is_free),
         array_agg(a.logical_date) filter (where not a.is_free),
         array_agg(coalesce(a.reason, 'key_taken')) filter (where not a.is_free)
  into filled, left_ids, left_dates, left_reasons
  from asked a;
end
$$;

-- Fill gaps: make the jobs of a backfill for these logical dates and record them as enqueued, in one step. Dates whose
-- row is in a state not listed in p_states are left alone (`planned` means planned and late); `enqueued` among them
-- makes a new generation of dates whose job has ended. What was decided before is kept in events. Returns how many
-- dates were filled and, as parallel arrays, those that were left alone, with the reasons of sched.fillable.
--
-- Takes the pass lock, so a date is never decided by a pass and a backfill at once. Jobs queue for their schedule's
-- overlap slot, or with p_is_overlap_allowed for the backfill's own slots (max_active).
create or replace function sched.fill(
  p_backfill_id bigint, p_states text[],
  p_ids integer[], p_revisions integer[], p_logical_dates timestamptz[], p_due_ats timestamptz[],
  p_walls timestamp[], p_folds boolean[], p_local_dates date[], p_interval_starts timestamptz[],
  p_now timestamptz default clock_timestamp(),
  out filled integer, out left_ids integer[], out left_dates timestamptz[], out left_reasons text[]
)
language plpgsql volatile set plan_cache_mode = force_custom_plan set jit = off as $$
declare
  b sched.backfills;
  v_own_key text;
  v_rule_ids integer[];
  v_rule_revisions integer[];
  v_keys text[];
  v_queues text[];
begin
  perform sched.need_read_committed('sched.fill');
  perform sched.take_pass_lock();
  perform sched.lock_walls(p_ids);
  select f.* into strict b from sched.backfills f where f.id = p_backfill_id for update;
  if b.status = 'cancelled' then
    raise exception 'backfill % was cancelled', p_backfill_id using errcode = 'object_not_in_prerequisite_state';
  end if;
  if b.max_active is not null then
    v_own_key := '$backfill-' || b.id;
    insert into sched.limits (key, slots) values (v_own_key, b.max_active) on conflict do nothing;
  end if;
  select array_agg(d.schedule_id), array_agg(d.revision) into v_rule_ids, v_rule_revisions
  from (select distinct u.* from unnest(p_ids, p_revisions) as u (schedule_id, revision)) d;
  select array_agg(distinct k) filter (where k is not null), array_agg(distinct r.queue) into v_keys, v_queues
  from unnest(v_rule_ids, v_rule_revisions) as d (schedule_id, revision)
  join sched.schedule_revisions r on r.schedule_id = d.schedule_id and r.revision = d.revision
  cross join unnest(array[
    case when r.overlap <> 'allow' and not b.is_overlap_allowed then sched.overlap_key(r.schedule_id)
         else v_own_key end,
    r.limit_key]) as k;
  perform sched.lock_keys(v_keys);

  -- Insertion without "on conflict", which would look into each unique index beforehand (a sixth of the time of a
  -- slice). Keys that are taken are looked for when one was found so; again when an application enqueued one meanwhile.
  for v_tries in 0..3 loop
    begin
      select f.* into filled, left_ids, left_dates, left_reasons
      from sched.fill_slice(
        b, v_own_key, p_states, v_rule_ids, v_rule_revisions, p_ids, p_revisions, p_logical_dates, p_due_ats, p_walls,
        p_folds, p_local_dates, p_interval_starts, p_now, v_tries > 0) f;
      exit;
    exception when unique_violation then
      if v_tries = 3 then
        raise;
      end if;
    end;
  end loop;

  if b.status = 'paused' then
    perform sched.hold_backfill(b.id);
  end if;
  perform sched.admit(v_keys);
  perform sched.wake(v_queues);
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
create or replace function sched.act_on_backfill(p_id bigint, p_action text, p_actor text, p_reason text default null)
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
      select j.id from sched.jobs j
      where j.backfill_id = p_id and j.status = 'held' and j.held_by = 'backfill' order by j.id for update));
    v_status := 'filled';
  elsif p_action = 'cancel' and v_status <> 'cancelled' then
    perform 1 from sched.jobs j
    where j.backfill_id = p_id and j.status in ('scheduled', 'waiting', 'pending', 'held') order by j.id for update;
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
  v_logical_date timestamptz;
  v_was record;
begin
  perform sched.need_read_committed('sched.waive');
  perform sched.take_pass_lock();
  perform sched.lock_walls(array[p_schedule_id]);
  v_logical_date := coalesce(
    (select o.logical_date from sched.occurrences o
     where o.schedule_id = p_schedule_id and o.logical_date = p_logical_date),
    (select w.logical_date from sched.recorded_walls(array[p_schedule_id], array[p_logical_date]) w
     where w.revision = p_revision and w.wall = p_wall and w.fold = p_fold),
    p_logical_date);
  select o.state, o.reason, o.decided_at into v_was
  from sched.occurrences o where o.schedule_id = p_schedule_id and o.logical_date = v_logical_date for update;
  if v_was.state in ('enqueued', 'waived') then
    return case v_was.state when 'waived' then 'already_waived' else 'enqueued' end;
  end if;
  insert into sched.occurrences as t (
    schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start,
    state, reason, decided_at, decided_by)
  values (p_schedule_id, p_revision, v_logical_date, p_due_at, p_wall, p_fold, p_local_date, p_interval_start,
          'waived', p_reason, clock_timestamp(), p_actor)
  on conflict on constraint occurrences_pkey do update
  set state = 'waived', reason = p_reason, decided_at = clock_timestamp(), decided_by = p_actor;
  insert into sched.events (kind, schedule_id, logical_date, actor, reason, details)
  values ('waived', p_schedule_id, v_logical_date, p_actor, p_reason,
          jsonb_build_object('was', v_was.state, 'reason', v_was.reason, 'decided_at', v_was.decided_at));
  return 'waived';
end
$$;

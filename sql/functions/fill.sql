-- Fill gaps: make backfill jobs for these logical dates and record them as enqueued, in one step. Dates whose row is
-- in a state not listed in p_states are left alone (`planned` means planned and late). Returns one row per date:
-- `inserted`, `already` or `key_taken`. What was decided before is kept in events.
--
-- Takes the pass lock, so a date is never decided by a pass and a backfill at once. Backfill jobs have a larger
-- priority number than live ones, and queue for their schedule's overlap slot unless p_is_overlap_allowed.
create or replace function sched.fill(
  p_backfill_id bigint, p_states text[], p_priority integer, p_is_overlap_allowed boolean, p_actor text,
  p_ids integer[], p_revisions integer[], p_logical_dates timestamptz[], p_due_ats timestamptz[],
  p_walls timestamp[], p_folds boolean[], p_local_dates date[], p_interval_starts timestamptz[],
  p_now timestamptz default clock_timestamp()
) returns table (schedule_id integer, logical_date timestamptz, outcome text)
language plpgsql volatile set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  v_keys text[];
  v_queues text[];
begin
  perform sched.take_pass_lock();
  select array_agg(distinct k) into v_keys
  from unnest(p_ids, p_revisions) as d (schedule_id, revision)
  join sched.schedule_revisions r on r.schedule_id = d.schedule_id and r.revision = d.revision
  cross join unnest(array[
    case when r.overlap <> 'allow' and not p_is_overlap_allowed then sched.overlap_key(r.schedule_id) end,
    r.limit_key]) as k
  where k is not null;
  perform sched.lock_keys(v_keys);

  return query
  with asked as (
    select d.*
    from unnest(p_ids, p_revisions, p_logical_dates, p_due_ats, p_walls, p_folds, p_local_dates, p_interval_starts)
      as d (schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start)
  ), open as (
    select a.*, s.name as schedule, o.state as old_state, o.reason as old_reason, o.decided_at as old_decided_at,
           coalesce(o.generation, 1) as generation, r.job_type, r.run, r.payload, r.queue, r.max_attempts, r.timeout,
           r.retry_base, r.retry_max, r.retry_jitter, r.limit_key,
           case when r.overlap <> 'allow' and not p_is_overlap_allowed then sched.overlap_key(a.schedule_id) end
             as overlap_key,
           sched.occurrence_key(r.key_template, s.name, a.logical_date, a.local_date, a.interval_start,
                                coalesce(o.generation, 1)) as key
    from asked a
    join sched.schedules s on s.id = a.schedule_id
    join sched.schedule_revisions r on r.schedule_id = a.schedule_id and r.revision = a.revision
    left join sched.occurrences o on o.schedule_id = a.schedule_id and o.logical_date = a.logical_date
    where a.logical_date > s.ledger_from
      and (o.state is null or (o.state = any (p_states) and (o.state <> 'planned' or o.due_at <= p_now)))
      and (o.state is not null or a.wall is null or not exists (
        select from sched.occurrences w
        where w.schedule_id = a.schedule_id and w.wall = a.wall and w.fold = a.fold and w.revision = a.revision))
  ), inserted as (
    insert into sched.jobs (
      job_type, run, payload, status, waiting_for, origin, queue, priority, max_attempts, timeout, retry_base,
      retry_max, retry_jitter, idempotency_key, schedule_id, schedule, logical_date, generation, interval_start,
      interval_end, revision, backfill_id, overlap_key, limit_key)
    select o.job_type, o.run, o.payload, case when w.waiting_for is null then 'pending' else 'waiting' end,
           w.waiting_for, 'backfill', o.queue, p_priority, o.max_attempts, o.timeout, o.retry_base,
           o.retry_max, o.retry_jitter, o.key, o.schedule_id, o.schedule, o.logical_date, o.generation,
           o.interval_start, o.logical_date, o.revision, p_backfill_id, o.overlap_key, o.limit_key
    from open o
    cross join lateral (select sched.first_key(o.overlap_key, o.limit_key) as waiting_for) w
    where not exists (select from sched.job_results k where k.key = o.key)
    order by o.logical_date, o.schedule_id
    on conflict do nothing
    returning id, schedule_id, logical_date, queue
  ), recorded as (
    insert into sched.occurrences as t (
      schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start, generation,
      state, reason, decided_at, decided_by, job_id)
    select o.schedule_id, o.revision, o.logical_date, o.due_at, o.wall, o.fold, o.local_date, o.interval_start,
           o.generation, 'enqueued', 'backfill', p_now, p_actor, i.id
    from open o
    join inserted i on i.schedule_id = o.schedule_id and i.logical_date = o.logical_date
    on conflict on constraint occurrences_pkey do update
    set state = 'enqueued', reason = 'backfill', decided_at = p_now, decided_by = p_actor,
        job_id = excluded.job_id
    returning t.schedule_id
  ), noted as (
    insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason, details)
    select 'backfilled', o.schedule_id, o.logical_date, i.id, p_actor, o.old_reason,
           jsonb_build_object('was', o.old_state, 'decided_at', o.old_decided_at)
    from open o
    join inserted i on i.schedule_id = o.schedule_id and i.logical_date = o.logical_date
    where o.old_state is not null
  )
  select a.schedule_id, a.logical_date,
         case when i.id is not null then 'inserted' when o.key is not null then 'key_taken' else 'already' end
  from asked a
  left join open o on o.schedule_id = a.schedule_id and o.logical_date = a.logical_date
  left join inserted i on i.schedule_id = a.schedule_id and i.logical_date = a.logical_date;

  perform sched.admit(v_keys);
  select array_agg(distinct r.queue) into v_queues
  from unnest(p_ids, p_revisions) as d (schedule_id, revision)
  join sched.schedule_revisions r on r.schedule_id = d.schedule_id and r.revision = d.revision;
  perform sched.wake(v_queues);
end
$$;

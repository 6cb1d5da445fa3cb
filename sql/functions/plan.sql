-- Planning: write occurrences computed by Python. SQL never converts local times.

-- How far the instant of a wall time in the ledger may be from the one computed now: not at all while all were computed
-- with one tz database, then less than two days, because offsets are less than one.
create or replace function sched.largest_move() returns interval
language sql stable as $$
  select case when s.tzdata_changed_at is null then interval '0' else interval '2 days' end from sched.state s
$$;

-- The same for a process that has this tz database, and perhaps not the one that has planned here.
create or replace function sched.largest_move_from(p_tzdata text) returns interval
language sql stable as $$
  select case when s.tzdata <> p_tzdata then interval '2 days' else sched.largest_move() end from sched.state s
$$;

-- Take note that a process with this tz database is about to decide dates by hand: walls may have moved from then on if
-- another one has planned here. Call it in a transaction of its own, before the one that decides.
create or replace function sched.meet_tzdata(p_tzdata text) returns void
language sql volatile as $$
  update sched.state s set tzdata_changed_at = clock_timestamp()
  where s.tzdata_changed_at is null and s.tzdata <> p_tzdata
$$;

-- Walls that the ledger has near these dates, with another instant perhaps: a decided wall is not decided again, nor
-- planned. Nothing is read while all dates come from one tz database, which is why no unique index does this (it would
-- be a third of the ledger). Whoever writes rows on this answer has locked their schedules (sched.lock_walls).
create or replace function sched.recorded_walls(p_ids integer[], p_logical_dates timestamptz[])
returns table (schedule_id integer, revision integer, wall timestamp, fold boolean, logical_date timestamptz)
language plpgsql stable as $$
declare
  v_move constant interval := sched.largest_move();
begin
  if v_move > interval '0' then
    return query
      select o.schedule_id, o.revision, o.wall, o.fold, o.logical_date
      from (
        select a.id, min(a.logical_date) - v_move as after, max(a.logical_date) + v_move as before
        from unnest(p_ids, p_logical_dates) as a (id, logical_date)
        group by a.id
      ) s
      join sched.occurrences o on o.schedule_id = s.id and o.logical_date > s.after and o.logical_date < s.before
      where o.wall is not null;
  end if;
end
$$;

-- Keep others from writing occurrences of these schedules, where walls may have moved. Planning locks the rows itself.
create or replace function sched.lock_walls(p_ids integer[]) returns void
language plpgsql volatile as $$
begin
  if sched.largest_move() > interval '0' then
    perform 1 from sched.schedules s where s.id = any (p_ids) order by s.id for share;
  end if;
end
$$;

-- Write these planned occurrences and move their schedules' positions, in one step. A schedule is written only if it
-- still is what the dates were computed from: same revision, same position, same tz database. Returns the schedules
-- written. Dates older than max_age are written as missed (or skipped, when paused) directly, and so are dates that a
-- new revision would have made due before it was applied. Rows that exist, by instant or by wall, stay as they are.
-- Locks schedules in id order, skipping those somebody holds.
create or replace function sched.plan(
  p_tzdata text, p_now timestamptz, p_by text,
  p_ids integer[], p_revisions integer[], p_planned_from timestamptz[], p_planned_until timestamptz[],
  p_plan_at timestamptz[],
  p_row_ids integer[], p_row_revisions integer[], p_logical_dates timestamptz[], p_due_ats timestamptz[],
  p_walls timestamp[], p_folds boolean[], p_local_dates date[], p_interval_starts timestamptz[]
) returns setof integer
language plpgsql volatile as $$
declare
  v_ids integer[];
begin
  perform sched.need_read_committed('sched.plan');
  perform sched.share_begin_lock();
  if (select s.tzdata from sched.state s) is distinct from p_tzdata then
    return;
  end if;
  select array_agg(l.id) into v_ids
  from (
    select s.id
    from sched.schedules s
    join unnest(p_ids, p_revisions, p_planned_from) as p (id, revision, planned_from) on p.id = s.id
    where s.revision = p.revision and s.planned_until = p.planned_from
      and s.tzdata is not distinct from p_tzdata
    order by s.id
    for update of s skip locked
  ) l;
  if v_ids is null then
    return;
  end if;

  with written as (
    select d.*,
           case
             when d.logical_date > r.valid_from and d.due_at <= r.valid_from
               then 'due_before_apply'
             when d.due_at >= p_now - r.max_age then null
             when sched.is_paused(d.schedule_id, d.due_at) then 'paused'
             else 'too_old'
           end as reason
    from unnest(p_row_ids, p_row_revisions, p_logical_dates, p_due_ats, p_walls, p_folds, p_local_dates,
                p_interval_starts)
      as d (schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start)
    join sched.schedules s on s.id = d.schedule_id
    join sched.schedule_revisions r on r.schedule_id = d.schedule_id and r.revision = d.revision
    where d.schedule_id = any (v_ids) and d.logical_date > s.ledger_from
      and (d.wall is null or (d.schedule_id, d.revision, d.wall, d.fold) not in (
        select w.schedule_id, w.revision, w.wall, w.fold from sched.recorded_walls(p_row_ids, p_logical_dates) w))
  )
  insert into sched.occurrences (schedule_id, revision, logical_date, due_at, wall, fold, local_date, interval_start,
                                 state, reason, decided_at, decided_by)
  select w.schedule_id, w.revision, w.logical_date, w.due_at, w.wall, w.fold, w.local_date, w.interval_start,
         case when w.reason is null then 'planned' when w.reason = 'paused' then 'skipped' else 'missed' end,
         w.reason,
         case when w.reason is not null then p_now end,
         case when w.reason is not null then p_by end
  from written w
  on conflict do nothing;

  update sched.schedules s
  set planned_until = p.planned_until, plan_at = p.plan_at
  from unnest(p_ids, p_planned_until, p_plan_at) as p (id, planned_until, plan_at)
  where s.id = p.id and s.id = any (v_ids);

  update sched.state s set nothing_due_before = d.first
  from (select min(u) as first from unnest(p_due_ats) as u) d
  where s.nothing_due_before > d.first;
  update sched.state s set last_plan_at = p_now
  where s.last_plan_at is null or s.last_plan_at > p_now or s.last_plan_at < p_now - interval '10 seconds';
  return query select unnest(v_ids);
end
$$;

-- Take note that a process with this tz database plans here. Returns the version in force, which only moves forward:
-- a newer one makes every schedule due for planning, and its planned dates are computed anew (sched.unplan_walls).
create or replace function sched.use_tzdata(p_tzdata text) returns text
language plpgsql volatile as $$
declare
  v_recorded text := (select s.tzdata from sched.state s);
begin
  if v_recorded >= p_tzdata then
    return v_recorded;
  end if;
  perform 1 from sched.schedules s order by s.id for update;  -- as sched.plan does, before the state
  update sched.state s
  set tzdata = p_tzdata, tzdata_changed_at = case when s.tzdata is not null then clock_timestamp() end
  where s.tzdata is null or s.tzdata < p_tzdata;
  if found then
    update sched.schedules s set plan_at = clock_timestamp() where v_recorded is not null;
    update sched.schedules s set tzdata = p_tzdata where s.tzdata is null;
  end if;
  return (select s.tzdata from sched.state s);
end
$$;

-- Make room for the dates of one schedule under a newer tz database: remove what is planned in local time from
-- p_after on, and take the schedule over to that database. Returns the removed walls; no row and no change when the
-- schedule is not what was read any more. Needs the pass lock.
create or replace function sched.unplan_walls(
  p_id integer, p_revision integer, p_planned_until timestamptz, p_tzdata text, p_after timestamptz,
  out is_taken boolean, out revisions integer[], out walls timestamp[], out folds boolean[],
  out logical_dates timestamptz[]
)
language plpgsql volatile as $$
begin
  update sched.schedules s
  set tzdata = p_tzdata
  where s.id = p_id and s.revision = p_revision and s.planned_until = p_planned_until
    and s.tzdata is distinct from p_tzdata
    and p_tzdata = (select t.tzdata from sched.state t);
  is_taken := found;
  if is_taken then
    with removed as (
      delete from sched.occurrences o
      where o.schedule_id = p_id and o.state = 'planned' and o.wall is not null and o.logical_date > p_after
      returning o.revision, o.wall, o.fold, o.logical_date
    )
    select array_agg(r.revision), array_agg(r.wall), array_agg(r.fold), array_agg(r.logical_date)
    into revisions, walls, folds, logical_dates
    from removed r;
  end if;
end
$$;

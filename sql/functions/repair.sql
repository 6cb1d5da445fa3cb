-- After the database's clock ran ahead and was set back: undo what it decided too early.

-- Make dates that were decided in what is now the future, and have no job, planned again: they will be decided when
-- they are due. What was decided is kept in events. At most p_limit dates; call it until it returns no date. Leases
-- and delays before the next attempt that were counted from such a moment end now, or for a worker that is alive, with
-- its next heartbeat. Dates that became jobs stay as they are. Returns how many dates and jobs it changed.
--
-- Takes the pass lock; locks schedules, then jobs, by id.
create or replace function sched.repair_clock(p_by text, p_limit integer default 100000)
returns table (dates integer, jobs integer)
language plpgsql volatile as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_ahead constant timestamptz := v_now + interval '1 minute';
  v_ids integer[];
  v_dates timestamptz[];
  v_jobs bigint[];
begin
  perform sched.take_pass_lock();
  select array_agg(w.schedule_id), array_agg(w.logical_date) into v_ids, v_dates
  from (
    select o.schedule_id, o.logical_date
    from sched.occurrences o
    where o.state in ('missed', 'skipped') and o.decided_at > v_ahead
    limit p_limit
  ) w;
  perform 1 from sched.schedules s where s.id = any (v_ids) order by s.id for update;

  insert into sched.events (kind, schedule_id, logical_date, actor, reason, details)
  select 'clock_repaired', o.schedule_id, o.logical_date, p_by, o.reason,
         jsonb_build_object('was', o.state, 'decided_at', o.decided_at)
  from unnest(v_ids, v_dates) as w (schedule_id, logical_date)
  join sched.occurrences o on o.schedule_id = w.schedule_id and o.logical_date = w.logical_date
  order by o.schedule_id, o.logical_date;

  update sched.occurrences o
  set state = 'planned', reason = null, decided_at = null, decided_by = null
  from unnest(v_ids, v_dates) as w (schedule_id, logical_date)
  where o.schedule_id = w.schedule_id and o.logical_date = w.logical_date and o.state in ('missed', 'skipped');
  get diagnostics dates = row_count;
  update sched.state s set nothing_due_before = null where s.nothing_due_before is not null;

  -- Rows up to the old position exist; planning them again finds them and goes on from there.
  update sched.schedules s
  set planned_until = least(s.planned_until, v_now), plan_at = v_now
  where s.id = any (v_ids) and s.planned_until < '9999-01-01 00:00:00+00';

  select array_agg(j.id) into v_jobs
  from (
    select r.id
    from sched.jobs r
    where (r.status = 'running' and r.heartbeat_at > v_ahead)
       or (r.status = 'scheduled' and exists (
             select from sched.attempts a where a.job_id = r.id and a.ended_at > v_ahead))
    order by r.id
    for update skip locked
  ) j;
  update sched.jobs j
  set lease_expires_at = case when j.status = 'running' then v_now + interval '1 minute' end,
      heartbeat_at = least(j.heartbeat_at, v_now),
      available_at = case when j.status = 'scheduled' then v_now else j.available_at end
  where j.id = any (v_jobs)
    and (j.lease_expires_at > v_now + interval '1 minute' or (j.status = 'scheduled' and j.available_at > v_now));
  get diagnostics jobs = row_count;
  if jobs > 0 then
    insert into sched.events (kind, actor, details)
    values ('clock_repaired', p_by, jsonb_build_object('jobs', jobs));
  end if;
  return next;
end
$$;

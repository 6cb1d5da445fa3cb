-- Retention, in small batches; call each until it returns zero. Nothing here waits for a pass: the ledger is pruned
-- only under its settled end.

-- Delete final jobs and their attempts that completed before p_before, at most p_limit of one status. Their ledger
-- rows and results stay. Returns how many.
create or replace function sched.prune_jobs(p_status text, p_before timestamptz, p_limit integer default 1000)
returns integer
language plpgsql volatile as $$
declare
  v_count integer;
begin
  if p_status not in ('succeeded', 'dead', 'cancelled') then
    raise exception 'only final jobs can be pruned, not %', p_status using errcode = 'invalid_parameter_value';
  end if;
  with old as (
    select j.id from sched.jobs j
    where j.status = p_status and j.completed_at < p_before
    order by j.id
    limit p_limit
    for update skip locked
  ), tries as (
    delete from sched.attempts a using old where a.job_id = old.id
  )
  delete from sched.jobs j using old where j.id = old.id;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

-- Delete results made before p_before whose job is gone, at most p_limit. Returns how many.
create or replace function sched.prune_results(p_before timestamptz, p_limit integer default 1000) returns integer
language plpgsql volatile as $$
declare
  v_count integer;
begin
  delete from sched.job_results r
  where r.key in (
    select o.key from sched.job_results o
    where o.created_at < p_before and not exists (select from sched.jobs j where j.id = o.produced_by)
    limit p_limit);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

-- Delete events before p_before, at most p_limit. Returns how many.
create or replace function sched.prune_events(p_before timestamptz, p_limit integer default 1000) returns integer
language plpgsql volatile as $$
declare
  v_count integer;
begin
  delete from sched.events e
  where e.id in (select o.id from sched.events o where o.at < p_before order by o.id limit p_limit);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

-- Move the ledger of one schedule forward: delete at most p_limit of its oldest rows with logical dates before
-- p_before, count them by local day and outcome in daily_counts, and move ledger_from, all in one step. Stops before
-- the first row that is not settled (planned) or whose job is unfinished. Nothing at or before ledger_from is planned,
-- fired, a gap or backfilled any more. Returns how many rows went. Locks the schedule, as planning and applying do.
create or replace function sched.prune_ledger(p_schedule_id integer, p_before timestamptz, p_limit integer default 5000)
returns integer
language plpgsql volatile as $$
declare
  v_stop timestamptz;
  v_last timestamptz;
  v_count integer;
begin
  perform sched.take_pass_lock();
  perform 1 from sched.schedules s where s.id = p_schedule_id for update;
  select min(o.logical_date) into v_stop
  from sched.occurrences o
  where o.schedule_id = p_schedule_id and o.logical_date < p_before
    and (o.state = 'planned' or exists (
      select from sched.jobs j
      where j.id = o.job_id and j.status in ('scheduled', 'waiting', 'pending', 'running', 'held')));
  select max(d.logical_date), count(*) into v_last, v_count
  from (
    select o.logical_date from sched.occurrences o
    where o.schedule_id = p_schedule_id and o.logical_date < least(p_before, coalesce(v_stop, p_before))
    order by o.logical_date
    limit p_limit
  ) d;
  if v_count = 0 then
    return 0;
  end if;
  with gone as (
    delete from sched.occurrences o
    where o.schedule_id = p_schedule_id and o.logical_date <= v_last
    returning o.local_date, o.state, o.reason
  )
  insert into sched.daily_counts as c (schedule_id, day, state, reason, dates)
  select p_schedule_id, g.local_date, g.state, coalesce(g.reason, ''), count(*)
  from gone g
  group by g.local_date, g.state, coalesce(g.reason, '')
  on conflict on constraint daily_counts_pkey do update set dates = c.dates + excluded.dates;
  update sched.schedules s set ledger_from = greatest(s.ledger_from, v_last) where s.id = p_schedule_id;
  return v_count;
end
$$;

-- How many days of the ledger are kept for each schedule when nobody says otherwise: 400, or 35 for more than 100
-- dates a day, judged by the dates of the last seven days.
create or replace function sched.ledger_days(p_schedule_id integer) returns integer
language sql stable as $$
  select case when count(*) > 700 then 35 else 400 end
  from (
    select from sched.occurrences o
    where o.schedule_id = p_schedule_id and o.logical_date > clock_timestamp() - interval '7 days'
      and o.logical_date <= clock_timestamp()
    limit 701
  ) recent
$$;

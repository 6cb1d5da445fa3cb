-- The watchdog: notes once, as an event, what somebody should look at. Called by the reaper every 10 seconds.

-- Record `overdue` once for every date that is not done by its finish_by. Returns how many were news. Leaves it to a
-- later beat while a pass has the state row: that pass may wait for keys that the reaper has locked.
create or replace function sched.watch(p_by text default 'watchdog') returns integer
language plpgsql volatile as $$
declare
  v_news integer;
begin
  perform 1
  from sched.state t
  where t.last_watch_at is null or t.last_watch_at < clock_timestamp() - interval '10 seconds'
     or t.last_watch_at > clock_timestamp()
  for update skip locked;
  if not found then
    return 0;
  end if;
  update sched.state t set last_watch_at = clock_timestamp();
  insert into sched.events (kind, schedule_id, logical_date, job_id, actor, reason)
  select 'overdue', o.schedule_id, o.logical_date, o.job_id, p_by,
         'not done by ' || sched.rfc3339(o.finish_by_at) || ': ' || coalesce('its job is ' || o.job_status, 'no job yet')
  from sched.overdue o
  where not exists (
    select from sched.events e
    where e.schedule_id = o.schedule_id and e.logical_date = o.logical_date and e.kind = 'overdue');
  get diagnostics v_news = row_count;
  return v_news;
end
$$;

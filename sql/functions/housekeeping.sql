-- What pg_cron calls besides sched.reap: the same passes as `sched tick` makes, and what only this host needs.

-- Record who hosts the passes; true if that was news. Planners of any process then plan to that host's horizon, those
-- of pg_cron at once: nobody else wakes them. Lock order: schedules by id, then the state row, as in sched.plan.
create or replace function sched.set_host(p_host text, p_by text) returns boolean
language plpgsql volatile as $$
declare
  v_was text;
begin
  select s.host into v_was from sched.state s;
  if v_was = p_host then
    return false;
  end if;
  if p_host = 'pg_cron' then
    perform 1
    from sched.schedules s
    where s.planned_until < '9999-01-01 00:00:00+00'
    order by s.id
    for update;
    update sched.schedules s
    set plan_at = clock_timestamp()
    where s.planned_until < '9999-01-01 00:00:00+00' and s.plan_at > clock_timestamp();
  end if;
  update sched.state s set host = p_host where s.host <> p_host;
  if found then
    insert into sched.events (kind, actor, details)
    values ('host_changed', p_by, jsonb_build_object('from', v_was, 'to', p_host));
    return true;
  end if;
  return false;
end
$$;

-- One beat of the host pg_cron: passes of sched.fire, each in a transaction of its own, until nothing is due or the
-- budget is spent; the next beat goes on. Call it as the only statement of its message: pg_cron runs several as one
-- transaction, in which this fails with "invalid transaction termination" instead of deciding a backlog at once.
create or replace procedure sched.beat(p_by text default 'pg_cron', p_budget interval default '30 seconds')
language plpgsql as $$
declare
  v_until timestamptz := clock_timestamp() + p_budget;
  v_pass record;
begin
  perform sched.set_host('pg_cron', p_by);
  commit;
  loop
    select f.outcome, f.is_more_due into v_pass from sched.fire(p_by => p_by) f;
    commit;
    exit when v_pass.outcome = 'busy' or not v_pass.is_more_due or clock_timestamp() >= v_until;
  end loop;
end
$$;

-- Record `horizon_ended` for every schedule whose planned dates have run out, once until it is extended: its next dates
-- are decided late, by catch-up, when some worker or ticker has planned them. Called by every pass, under its lock, so
-- no two record the same. Returns how many were news. Index: schedules_plan; a schedule whose horizon ended has waited
-- for a planner since before, and one that waits for a few seconds only is being planned, slice by slice. Nor has a
-- horizon ended that was reached while no passes were made: after such an outage planners get their turn first.
create or replace function sched.note_ended_horizons(p_now timestamptz, p_by text) returns integer
language plpgsql volatile as $$
declare
  v_news integer;
begin
  insert into sched.events (kind, schedule_id, actor, reason, details)
  select 'horizon_ended', s.id, p_by, 'no process that plans has extended it',
         jsonb_build_object('planned_until', sched.rfc3339(s.planned_until))
  from sched.schedules s
  where s.plan_at < p_now - interval '10 seconds'
    and s.planned_until < least(p_now, (select t.last_pass_at from sched.state t))
    and s.retired_at is null
    and not exists (
      select from sched.events e
      where e.schedule_id = s.id and e.logical_date is null and e.kind = 'horizon_ended'
        and e.details ->> 'planned_until' = sched.rfc3339(s.planned_until));
  get diagnostics v_news = row_count;
  return v_news;
end
$$;

-- Record how far the clock of a ticker is ahead of this database's (behind: negative), when they are over a minute apart;
-- null when they agree. Told every second, it writes when the difference has changed by more than ten seconds.
create or replace function sched.note_clock(p_apart interval) returns void
language sql volatile as $$
  update sched.state s set clock_apart = p_apart
  where (s.clock_apart is null) <> (p_apart is null)
     or abs(extract(epoch from s.clock_apart - p_apart)) > 10
$$;

-- Up to when each schedule in force is planned, the earliest end first; schedules without further dates are left out.
-- With `sched tick` this is always minutes ahead; under pg_cron it must reach past the next start of a worker.
create or replace view sched.horizon as
select s.name as schedule, s.planned_until as ends_at, s.planned_until - clock_timestamp() as remaining,
       s.planned_until < clock_timestamp() as is_ended
from sched.schedules s
where s.retired_at is null and s.planned_until < '9999-01-01 00:00:00+00'
order by s.planned_until, s.id;

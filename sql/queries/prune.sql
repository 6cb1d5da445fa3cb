-- What `sched prune` would delete, without deleting it. The deletions are functions, sql/functions/prune.sql.

-- name: prune_count
-- How many rows of each kind are older than their time. Reads the tables as a whole. Results go with their job, so those
-- of jobs that would go are counted. Of the ledger, a null time means each schedule's default.
with old_jobs as not materialized (
  select j.id, j.status
  from sched.jobs j
  where (j.status = 'succeeded' and j.completed_at < %(succeeded)s::timestamptz)
     or (j.status = 'cancelled' and j.completed_at < %(cancelled)s::timestamptz)
     or (j.status = 'dead' and j.completed_at < %(dead)s::timestamptz)
), bounds as (
  select s.id,
         coalesce(%(ledger)s::timestamptz,
                  %(now)s::timestamptz - make_interval(days => sched.ledger_days(s.id))) as before
  from sched.schedules s
), ends as (
  -- The ledger is pruned from its old end up to the first date that is not settled.
  select b.id, least(b.before, coalesce(u.at, b.before)) as before
  from bounds b
  cross join lateral (
    select min(o.logical_date) as at
    from sched.occurrences o
    where o.schedule_id = b.id and o.logical_date < b.before
      and (o.state = 'planned' or exists (
        select from sched.jobs j
        where j.id = o.job_id and j.status in ('scheduled', 'waiting', 'pending', 'running', 'held')))
  ) u
)
select (select count(*) from old_jobs o where o.status = 'succeeded') as succeeded_jobs,
       (select count(*) from old_jobs o where o.status = 'cancelled') as cancelled_jobs,
       (select count(*) from old_jobs o where o.status = 'dead') as dead_jobs,
       (select count(*) from ends e
        join sched.occurrences o on o.schedule_id = e.id and o.logical_date < e.before) as dates,
       (select count(*) from sched.job_results r
        where r.created_at < %(results)s::timestamptz
          and (exists (select from old_jobs o where o.id = r.produced_by)
               or not exists (select from sched.jobs j where j.id = r.produced_by))) as results,
       (select count(*) from sched.events e where e.at < %(events)s::timestamptz) as events;

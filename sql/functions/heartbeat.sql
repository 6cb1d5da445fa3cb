-- Extend the leases of running jobs, in id order, skipping rows somebody holds: a completing transaction of the job
-- itself must not be waited for. Returns a row per job that was decided: `extended` or `lost`; a job whose row is
-- locked is in neither and is asked again at the next beat. is_cancel_requested asks the handler to stop.
-- p_progress and p_notes say how far the jobs are, where that is news: a null fraction leaves both as they are. They are
-- cut to what fits, for a beat must not fail because of them.
-- Changes no indexed column, so that a beat is a HOT update. Only a running job has a token, and jobs are found by
-- jobs_pkey: jobs_running keeps an entry of every job that ran while some session holds an old snapshot, and reading
-- it made a beat ten times as slow after 30,000 jobs.
create or replace function sched.heartbeat(
  p_ids bigint[], p_tokens uuid[], p_lease interval, p_progress real[] default null, p_notes text[] default null
) returns table (id bigint, outcome text, is_cancel_requested boolean)
language plpgsql volatile
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
  with locked as materialized (
    select j.id
    from sched.jobs j
    where j.id = any (p_ids)
    order by j.id
    for update skip locked
  ), extended as (
    update sched.jobs j
    set lease_expires_at = clock_timestamp() + p_lease, heartbeat_at = clock_timestamp(),
        progress = case when e.progress is null then j.progress else least(greatest(e.progress, 0), 1) end,
        progress_note = case when e.progress is null then j.progress_note else left(e.note, 1000) end
    from locked l
    join unnest(p_ids, p_tokens, p_progress, p_notes) as e (id, token, progress, note) on e.id = l.id
    where j.id = any (array[l.id]) and j.lease_token = e.token and j.lease_expires_at > clock_timestamp()
    returning j.id, j.lease_token, j.cancel_requested_at is not null as is_cancel_requested
  )
  select e.id, case when x.id is not null then 'extended' else 'lost' end, coalesce(x.is_cancel_requested, false)
  from unnest(p_ids, p_tokens) as e (id, token)
  left join extended x on x.id = e.id and x.lease_token = e.token
  left join locked l on l.id = e.id
  where l.id is not null or not exists (select from sched.jobs j where j.id = e.id);
end
$$;

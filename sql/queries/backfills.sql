-- name: backfills_insert
insert into sched.backfills (
  actor, reason, schedules, since, until, kinds, priority, is_descending, is_overlap_allowed, is_rerun, max_active,
  payload)
values (
  %(actor)s::text, %(reason)s::text, %(schedules)s::text[], %(since)s::text, %(until)s::text, %(kinds)s::text[],
  %(priority)s::integer, %(is_descending)s::boolean, %(is_overlap_allowed)s::boolean, %(is_rerun)s::boolean,
  %(max_active)s::integer, %(payload)s::jsonb)
returning id;

-- name: backfills_count
-- What one slice did; in its transaction.
update sched.backfills b
set inserted = b.inserted + %(inserted)s::integer, already = b.already + %(already)s::integer,
    key_taken = b.key_taken + %(key_taken)s::integer
where b.id = %(id)s::bigint;

-- name: backfills_complete
-- Also of one that was paused meanwhile: this commit makes its slices durable.
update sched.backfills b
set status = case b.status when 'filling' then 'filled' else b.status end, completed_at = clock_timestamp()
where b.id = %(id)s::bigint and b.status in ('filling', 'paused');

-- name: backfills_list
-- Backfills, the newest first, and how many of their jobs stand where. Index: jobs_backfill.
select b.id, b.status, b.created_at, b.completed_at, b.actor, b.reason, b.schedules, b.since, b.until, b.kinds,
       b.priority, b.is_descending, b.is_rerun, b.max_active, b.inserted, b.already, b.key_taken,
       coalesce((select jsonb_object_agg(c.status, c.jobs)
                 from (select j.status, count(*) as jobs from sched.jobs j where j.backfill_id = b.id group by j.status) c),
                '{}') as jobs
from sched.backfills b
where %(id)s::bigint is null or b.id = %(id)s::bigint
order by b.id desc
limit %(limit)s::integer;

-- name: backfills_act
select s.outcome, s.jobs
from sched.act_on_backfill(%(id)s::bigint, %(action)s::text, %(actor)s::text, %(reason)s::text) s;

-- name: jobs_usual_duration
-- How long a job of this schedule usually runs: the median of its last 50 successes. Index: jobs_occurrence.
select percentile_cont(0.5) within group (order by d.duration) as duration
from (
  select j.completed_at - j.started_at as duration
  from sched.jobs j
  where j.schedule_id = %(id)s::integer and j.status = 'succeeded' and j.logical_date is not null
  order by j.logical_date desc
  limit 50
) d;

-- name: occurrences_waive
select sched.waive(
  %(id)s::integer, %(revision)s::integer, %(logical_date)s::timestamptz, %(due_at)s::timestamptz, %(wall)s::timestamp,
  %(fold)s::boolean, %(local_date)s::date, %(interval_start)s::timestamptz, %(actor)s::text, %(reason)s::text);

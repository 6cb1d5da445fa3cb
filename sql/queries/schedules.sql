-- name: schedules_list
-- Every schedule with its newest revision, retired ones too, by name.
select s.id, s.name, s.former_names, s.owner, s.revision, s.applied_at, s.retired_at, r.hash, r.file, r.definition
from sched.schedules s
join sched.schedule_revisions r on r.schedule_id = s.id and r.revision = s.revision
order by s.name;

-- name: schedules_due_for_planning
-- Schedules whose planned dates run short, the most urgent first. Index: schedules_plan.
select s.id, s.revision, s.planned_until, s.tzdata
from sched.schedules s
where s.plan_at <= %(now)s::timestamptz
order by s.plan_at, s.id
limit %(limit)s::integer;

-- name: revisions_of
-- All revisions of these schedules, oldest first.
select r.schedule_id, s.name, s.applied_at, s.ledger_from, r.revision, r.valid_from, r.valid_until, r.hash, r.definition
from sched.schedule_revisions r
join sched.schedules s on s.id = r.schedule_id
where r.schedule_id = any (%(ids)s::integer[])
order by r.schedule_id, r.revision;

-- name: occurrences_plan
select sched.plan(
  %(tzdata)s::text, %(now)s::timestamptz, %(by)s::text,
  %(ids)s::integer[], %(revisions)s::integer[], %(planned_from)s::timestamptz[], %(planned_until)s::timestamptz[],
  %(plan_at)s::timestamptz[],
  %(row_ids)b::integer[], %(row_revisions)b::integer[], %(logical_dates)b::timestamptz[], %(due_ats)b::timestamptz[],
  %(walls)b::timestamp[], %(folds)b::boolean[], %(local_dates)b::date[], %(interval_starts)b::timestamptz[]);

-- name: occurrences_unplan_walls
select u.is_taken, u.revisions, u.walls, u.folds, u.logical_dates
from sched.unplan_walls(
  %(id)s::integer, %(revision)s::integer, %(planned_until)s::timestamptz, %(tzdata)s::text,
  %(after)s::timestamptz) u;

-- name: occurrences_last_wall
-- Of the last hundred dates, since walls of neighbours may change places. Index: occurrences_pkey.
select max(l.wall)
from (
  select o.wall from sched.occurrences o
  where o.schedule_id = %(id)s::integer and o.logical_date <= %(planned_until)s::timestamptz
  order by o.logical_date desc limit 100
) l;

-- name: occurrences_between
-- The ledger of one schedule for logical dates in (after, until], and those whose wall may be in it. Index:
-- occurrences_pkey.
select o.schedule_id, o.revision, o.logical_date, o.due_at, o.wall, o.fold, o.state, o.reason, o.job_id,
       case when %(with_jobs)s::boolean then (select j.status from sched.jobs j where j.id = o.job_id) end as job_status
from sched.occurrences o
where o.schedule_id = %(id)s::integer
  and o.logical_date > %(after)s::timestamptz - sched.largest_move_from(%(tzdata)s::text)
  and o.logical_date <= %(until)s::timestamptz + sched.largest_move_from(%(tzdata)s::text)
order by o.logical_date;

-- name: occurrences_outcomes
-- Decided dates by schedule, state and reason, and what became of their jobs. Reads the whole ledger.
with decided as (
  select o.schedule_id, o.state, o.reason, o.logical_date, j.status
  from sched.occurrences o
  left join sched.jobs j on j.id = o.job_id
  where o.state <> 'planned'
), counted as (
  select d.schedule_id, d.state, d.reason, d.status, count(*) as dates,
         min(d.logical_date) as first, max(d.logical_date) as last
  from decided d
  group by d.schedule_id, d.state, d.reason, d.status
)
select s.name as schedule, c.state, c.reason, sum(c.dates)::bigint as dates, min(c.first) as first,
       max(c.last) as last, string_agg(c.dates || ' ' || c.status, ', ' order by c.status) as jobs
from counted c
join sched.schedules s on s.id = c.schedule_id
group by s.name, c.state, c.reason
order by s.name, c.state, c.reason;

-- name: occurrences_fill
-- One slice of a backfill: see sched.fill. A slice need not be durable before backfills_complete, which is.
select f.filled, f.left_ids, f.left_dates, f.left_reasons
from (select set_config('synchronous_commit', 'off', true)) as not_durable,
     sched.fill(
  %(backfill_id)s::bigint, %(states)s::text[],
  %(row_ids)b::integer[], %(row_revisions)b::integer[], %(logical_dates)b::timestamptz[], %(due_ats)b::timestamptz[],
  %(walls)b::timestamp[], %(folds)b::boolean[], %(local_dates)b::date[], %(interval_starts)b::timestamptz[]) f;

-- name: fire
-- One pass, at this moment or, in a simulation, at another; see sql/functions/fire.sql.
select f.outcome, f.enqueued, f.skipped, f.missed, f.is_more_due, f.next_due_at, f.decided_at
from sched.fire(coalesce(%(now)s::timestamptz, clock_timestamp()), %(limit)s::integer, %(by)s::text) f;

-- name: state_use_tzdata
select sched.use_tzdata(%(tzdata)s::text);

-- name: state_meet_tzdata
select sched.meet_tzdata(%(tzdata)s::text);

-- name: schedules_count
-- How many schedules are in force.
select count(*) from sched.schedules s where s.retired_at is null;

-- name: state_host
select s.host from sched.state s;

-- name: events_insert
insert into sched.events (kind, schedule_id, actor, reason, details)
values (%(kind)s::text, %(schedule_id)s::integer, %(actor)s::text, %(reason)s::text, %(details)s::jsonb);

-- name: pass_lock_take
-- Wait for the pass that is under way; held until the end of the transaction.
select sched.take_pass_lock();

-- name: schedules_lock
-- Lock these schedules in id order; returns what they are now, to be compared with what was compared before.
select s.id, s.revision, s.retired_at
from sched.schedules s
where s.id = any (%(ids)s::integer[])
order by s.id
for update;

-- name: schedules_insert
-- New schedules; a name that somebody took meanwhile is left out of the answer.
insert into sched.schedules (name, owner, revision, start_at, end_at, applied_at, planned_until, plan_at, tzdata)
select d.name, d.owner, 0, d.start_at, d.end_at, %(valid_from)s::timestamptz, %(valid_from)s::timestamptz,
       %(valid_from)s::timestamptz, (select t.tzdata from sched.state t)
from jsonb_to_recordset(%(rows)s::jsonb) as d (name text, owner text, start_at timestamptz, end_at timestamptz)
order by d.name
on conflict do nothing
returning id, name;

-- name: limits_insert_for_schedules
-- The overlap slot of each schedule.
insert into sched.limits (key, slots)
select sched.overlap_key(i), 1
from unnest(%(ids)s::integer[]) as i
on conflict do nothing;

-- name: revisions_close
-- End the revisions in force of these schedules.
update sched.schedule_revisions r
set valid_until = %(valid_from)s::timestamptz
from sched.schedules s
where s.id = any (%(ids)s::integer[]) and r.schedule_id = s.id and r.revision = s.revision and r.valid_until is null;

-- name: revisions_insert
-- New revisions, in force for logical dates after valid_from. The columns that SQL decides by are read from the
-- definition itself, so that they cannot differ from it.
insert into sched.schedule_revisions (
  schedule_id, revision, valid_from, hash, definition, file, applied_by, job_type, run, payload, key_template, queue,
  priority, max_attempts, retry_base, retry_max, retry_jitter, timeout, limit_key, catchup, grace, max_age, overlap,
  finish_by, on_final_failure)
select d.schedule_id, d.revision, %(valid_from)s::timestamptz, d.hash, d.definition, d.file, %(actor)s::text,
       d.definition ->> 'job', nullif(d.definition -> 'run', 'null'), d.definition -> 'payload',
       d.definition ->> 'idempotency_key', d.definition ->> 'queue', (d.definition ->> 'priority')::integer,
       (d.definition #>> '{retry,max_attempts}')::integer, (d.definition #>> '{retry,base}')::interval,
       (d.definition #>> '{retry,max}')::interval, (d.definition #>> '{retry,jitter}')::double precision,
       (d.definition ->> 'timeout')::interval, d.definition ->> 'limit', d.definition #>> '{catchup,policy}',
       (d.definition #>> '{catchup,grace}')::interval, (d.definition #>> '{catchup,max_age}')::interval,
       d.definition ->> 'overlap', (d.definition ->> 'finish_by')::interval, d.definition ->> 'on_final_failure'
from jsonb_to_recordset(%(rows)s::jsonb) as d (
  schedule_id integer, revision integer, hash text, definition jsonb, file text);

-- name: schedules_revise
-- Point schedules at their new revisions. The position never moves forward here: dates of the old revision up to
-- valid_from that are not planned yet are planned later, under the old revision.
update sched.schedules s
set name = d.name, owner = d.owner, revision = d.revision, start_at = d.start_at, end_at = d.end_at, retired_at = null,
    former_names = case when s.name = d.name or s.name = any (s.former_names) then s.former_names
                        else s.former_names || s.name end,
    planned_until = least(s.planned_until, %(valid_from)s::timestamptz),
    plan_at = %(valid_from)s::timestamptz
from jsonb_to_recordset(%(rows)s::jsonb) as d (
  schedule_id integer, revision integer, name text, owner text, start_at timestamptz, end_at timestamptz)
where s.id = d.schedule_id
returning s.id, s.revision, s.planned_until, s.tzdata;

-- name: schedules_retire
-- No date after this moment is expected any more; what is not planned yet up to it still will be.
update sched.schedules s
set retired_at = %(valid_from)s::timestamptz,
    planned_until = least(s.planned_until, %(valid_from)s::timestamptz),
    plan_at = %(valid_from)s::timestamptz
where s.id = any (%(ids)s::integer[]);

-- name: schedules_move_file
-- A definition that only moved between files keeps its revision.
update sched.schedule_revisions r
set file = d.file
from jsonb_to_recordset(%(rows)s::jsonb) as d (schedule_id integer, revision integer, file text)
where r.schedule_id = d.schedule_id and r.revision = d.revision;

-- name: occurrences_unplan
-- Planned dates after the moment a definition changed; the new one plans its own.
delete from sched.occurrences o
where o.schedule_id = any (%(ids)s::integer[])
  and o.logical_date > %(valid_from)s::timestamptz
  and o.state = 'planned';

-- name: limits_apply
-- The limits of these owners as their files say. When one gets fewer slots, that is noted.
insert into sched.limits as l (key, slots, owner)
select d.key, d.slots, d.owner
from jsonb_to_recordset(%(rows)s::jsonb) as d (key text, slots integer, owner text)
order by d.key
on conflict (key) do update
set slots = excluded.slots, owner = excluded.owner,
    lowered_at = case when excluded.slots < l.slots then clock_timestamp() else l.lowered_at end;

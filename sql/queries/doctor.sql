-- What `sched doctor` looks at. No locks; lists are cut at %(limit)s.

-- name: doctor_server
-- What can be asked of any server, with or without our schema.
select current_setting('server_version_num')::integer as version,
       clock_timestamp() as now,
       pg_notification_queue_usage() as notification_queue_usage,
       current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on' as is_vacuuming,
       current_setting('fsync') = 'on' and current_setting('full_page_writes') = 'on'
         and current_setting('synchronous_commit') <> 'off' as is_durable;

-- name: doctor_state
select t.host, t.tzdata, t.last_pass_at, t.clock_apart,
       (select count(*) from sched.schedules s where s.retired_at is null) as schedules
from sched.state t;

-- name: state_note_clock
select sched.note_clock(%(apart)s::interval);

-- name: doctor_draining_limits
-- Limits that were lowered while more jobs had been admitted, and are over their slots until enough of them have ended.
-- Index: jobs_limit_holders.
select l.key || ' (' || h.jobs || ' of ' || l.slots || ')' as what, l.lowered_at as at
from sched.limits l
cross join lateral (
  select count(*) as jobs from sched.jobs j where j.limit_key = l.key and j.holds_limit) h
where l.lowered_at is not null and h.jobs > l.slots
order by l.lowered_at, l.key
limit %(limit)s::integer;

-- name: doctor_unplanned
-- Schedules that a planner should have looked at by now. Index: schedules_plan.
select s.name as what, s.plan_at as at
from sched.schedules s
where s.plan_at < clock_timestamp() - %(patience)s::interval
order by s.plan_at, s.id
limit %(limit)s::integer;

-- name: doctor_ended_horizons
select h.schedule as what, h.horizon_end as at
from sched.health h
where h.is_horizon_ended and h.horizon_end < clock_timestamp() - %(patience)s::interval
order by h.horizon_end, h.schedule
limit %(limit)s::integer;

-- name: doctor_overdue
select o.schedule || ' ' || sched.rfc3339(o.logical_date) as what, o.finish_by_at as at
from sched.overdue o
order by o.finish_by_at, o.schedule, o.logical_date
limit %(limit)s::integer;

-- name: doctor_undecided
-- The oldest late date of each schedule that has some, without those that a pause keeps. Index: occurrences_due.
select s.name as what, min(o.due_at) as at
from sched.occurrences o
join sched.schedules s on s.id = o.schedule_id
join sched.schedule_revisions r on r.schedule_id = o.schedule_id and r.revision = o.revision
where o.state = 'planned'
  and o.due_at < clock_timestamp() - %(patience)s::interval
  and o.due_at < clock_timestamp() - r.grace - %(patience)s::interval
  and not exists (
    select from sched.pauses p
    where p.schedule_id = o.schedule_id and p.keep
      and p.from_at <= o.due_at and (p.until_at is null or p.until_at > clock_timestamp()))
group by s.id
order by min(o.due_at), s.name
limit %(limit)s::integer;

-- name: doctor_future_decisions
-- Decisions without a job that a clock stamped which was ahead. See sched.repair_clock.
select 'schedule ' || o.schedule_id || ' at ' || sched.rfc3339(o.logical_date) as what, o.decided_at as at
from sched.occurrences o
where o.state in ('missed', 'skipped') and o.decided_at > clock_timestamp() + interval '1 minute'
limit %(limit)s::integer;

-- name: doctor_expired_leases
-- Leases that a reaper should have taken over by now. Index: jobs_running.
select 'job ' || j.id as what, j.lease_expires_at as at
from sched.jobs j
where j.status = 'running' and j.lease_expires_at < clock_timestamp() - %(patience)s::interval
order by j.lease_expires_at, j.id
limit %(limit)s::integer;

-- name: doctor_unserved_queues
-- Queues with a job that nobody claims, since when, although it could be. Index: jobs_claim.
select q.queue as what, q.since as at
from (
  select j.queue, min(j.available_at) as since from sched.jobs j where j.status = 'pending' group by j.queue
) q
where q.since < clock_timestamp() - %(patience)s::interval
  and not exists (
    select from sched.workers w
    where q.queue = any (w.queues) and w.stopped_at is null
      and w.seen_at > clock_timestamp() - interval '1 minute')
order by q.since, q.queue
limit %(limit)s::integer;

-- name: doctor_calendars
-- Schedules in force whose stored holidays end soon, by the day after the last one that is known.
select s.name as what, (d.known_until + 1)::timestamp at time zone 'UTC' as at
from sched.schedules s
join sched.schedule_revisions r on r.schedule_id = s.id and r.revision = s.revision
cross join lateral (select (r.definition #>> '{timing,calendar,known_until}')::date as known_until) d
where s.retired_at is null
  and (s.end_at is null or s.end_at > d.known_until)
  and d.known_until < clock_timestamp() + %(ahead)s::interval
order by d.known_until, s.name
limit %(limit)s::integer;

-- name: doctor_sessions
-- Sessions on this database that keep vacuum from removing dead rows, or hold locks while they do nothing; prepared
-- transactions count as idle. Sessions of other users show only to members of pg_read_all_stats.
select a.pid, a.application_name as application, a.state, clock_timestamp() - a.xact_start as age
from pg_stat_activity a
where a.datname = current_database()
  and a.pid <> pg_backend_pid()
  and a.backend_type = 'client backend'
  and ((starts_with(a.state, 'idle in transaction') and a.state_change < clock_timestamp() - %(idle)s::interval)
    or (a.backend_xmin is not null and a.xact_start < clock_timestamp() - %(old)s::interval))
union all
select 0, p.gid, 'prepared', clock_timestamp() - p.prepared
from pg_prepared_xacts p
where p.database = current_database() and p.prepared < clock_timestamp() - %(idle)s::interval
order by age desc
limit %(limit)s::integer;

-- name: doctor_repair_clock
select r.dates, r.jobs
from sched.repair_clock(%(by)s::text) r;

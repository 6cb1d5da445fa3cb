-- What must always hold, each as a query for what violates it: a few words per case, at most %(limit)s of them. Run by
-- `sched doctor` and at the end of tests. They take no lock and read the tables as a whole: not for every second.

-- name: invariant_one_job_per_date
-- Also a unique index, jobs_occurrence: a violation would mean that it is damaged.
select 'schedule ' || j.schedule_id || ' at ' || sched.rfc3339(j.logical_date) as what
from sched.jobs j
where j.logical_date is not null
group by j.schedule_id, j.logical_date, j.generation
having count(*) > 1
limit %(limit)s::integer;

-- name: invariant_one_row_per_wall
-- Kept by sched.recorded_walls, not by an index, which would be a third of the ledger.
select 'schedule ' || o.schedule_id || ' at ' || o.wall as what
from sched.occurrences o
where o.wall is not null
group by o.schedule_id, o.revision, o.wall, o.fold
having count(*) > 1
limit %(limit)s::integer;

-- name: invariant_passes_see_every_date
select 'schedule ' || o.schedule_id || ' at ' || sched.rfc3339(o.logical_date) as what
from sched.occurrences o
join sched.state s on o.due_at < s.nothing_due_before
where o.state = 'planned'
limit %(limit)s::integer;

-- name: invariant_running_has_lease
select 'job ' || j.id as what
from sched.jobs j
where j.status = 'running' and (j.lease_owner is null or j.lease_token is null or j.lease_expires_at is null)
limit %(limit)s::integer;

-- name: invariant_limit_slots
-- A limit that was lowered is over its slots until enough of the jobs admitted before have ended; a job made since then
-- can only have been admitted wrongly while it is.
select 'limit ' || l.key as what
from sched.limits l
where l.slots < (select count(*) from sched.jobs j where j.limit_key = l.key and j.holds_limit)
  and (l.lowered_at is null or exists (
    select from sched.jobs j where j.limit_key = l.key and j.holds_limit and j.created_at > l.lowered_at))
limit %(limit)s::integer;

-- name: invariant_overlap_slots
select 'limit ' || l.key as what
from sched.limits l
where l.slots < (select count(*) from sched.jobs j where j.overlap_key = l.key and j.holds_overlap)
limit %(limit)s::integer;

-- name: invariant_keyed_jobs_hold_their_slots
select 'job ' || j.id as what
from sched.jobs j
where j.status in ('pending', 'running')
  and ((j.overlap_key is not null and not j.holds_overlap) or (j.limit_key is not null and not j.holds_limit))
limit %(limit)s::integer;

-- name: invariant_no_wait_beside_a_free_slot
-- Jobs younger than ten seconds are left out: the reaper, who admits what a crash left behind, beats every second.
select 'limit ' || l.key as what
from sched.limits l
where exists (
    select from sched.jobs j
    where j.status = 'waiting' and j.waiting_for = l.key and j.created_at < clock_timestamp() - interval '10 seconds')
  and l.slots > (select count(*) from sched.jobs j where j.overlap_key = l.key and j.holds_overlap)
    + (select count(*) from sched.jobs j where j.limit_key = l.key and j.holds_limit)
limit %(limit)s::integer;

-- name: invariant_attempt_count
select 'job ' || j.id as what
from sched.jobs j
left join (select a.job_id, count(*) as tries from sched.attempts a group by a.job_id) t on t.job_id = j.id
where j.attempt_count - (j.status = 'running')::integer <> coalesce(t.tries, 0)
limit %(limit)s::integer;

-- name: invariant_final_jobs_are_ended
select 'job ' || j.id as what
from sched.jobs j
where j.status in ('succeeded', 'dead', 'cancelled') and (j.completed_at is null or j.lease_token is not null)
limit %(limit)s::integer;

-- name: invariant_enqueued_dates_have_their_job
-- Jobs are pruned, and their dates stay. So a date decided less than jobs_kept ago has its job, and an older one has
-- none or its own; with null, no job was ever pruned.
select 'schedule ' || o.schedule_id || ' at ' || sched.rfc3339(o.logical_date) as what
from sched.occurrences o
left join sched.jobs j on j.id = o.job_id
where o.state = 'enqueued'
  and case when j.id is null then coalesce(o.decided_at > clock_timestamp() - %(jobs_kept)s::interval, true)
           else (j.schedule_id, j.logical_date, j.generation) is distinct from
                (o.schedule_id, o.logical_date, o.generation) end
limit %(limit)s::integer;

-- name: invariant_jobs_of_dates_are_in_the_ledger
-- Dates up to ledger_from were pruned; dead jobs are kept longer than they.
select 'job ' || j.id as what
from sched.jobs j
join sched.schedules s on s.id = j.schedule_id
where j.logical_date > s.ledger_from
  and not exists (
    select from sched.occurrences o
    where o.schedule_id = j.schedule_id and o.logical_date = j.logical_date and o.state = 'enqueued')
limit %(limit)s::integer;

-- name: invariant_no_foreign_id_without_its_row
-- What foreign keys would hold; hot tables have none.
select f.what
from (
  select 'schedule of job ' || j.id as what
  from sched.jobs j
  where j.schedule_id is not null and not exists (select from sched.schedules s where s.id = j.schedule_id)
  union all
  select 'backfill of job ' || j.id
  from sched.jobs j
  where j.backfill_id is not null and not exists (select from sched.backfills b where b.id = j.backfill_id)
  union all
  select 'limit that job ' || j.id || ' waits for'
  from sched.jobs j
  where j.status = 'waiting' and not exists (select from sched.limits l where l.key = j.waiting_for)
  union all
  select 'job of attempt ' || a.job_id || '/' || a.number
  from sched.attempts a
  where not exists (select from sched.jobs j where j.id = a.job_id)
  union all
  select 'revision of schedule ' || o.schedule_id || ' at ' || sched.rfc3339(o.logical_date)
  from sched.occurrences o
  where not exists (
    select from sched.schedule_revisions r where r.schedule_id = o.schedule_id and r.revision = o.revision)
) f
limit %(limit)s::integer;

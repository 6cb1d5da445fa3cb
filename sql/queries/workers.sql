-- name: workers_register
-- Make this process known, and forget those unseen for 30 days.
with forgotten as (
  delete from sched.workers w where w.seen_at < clock_timestamp() - interval '30 days' and w.id <> %(worker)s::uuid
)
insert into sched.workers (id, name, queues, concurrency, has_free_slots)
values (%(worker)s::uuid, %(name)s, %(queues)s::text[], %(concurrency)s::integer, %(has_free_slots)s::boolean)
on conflict (id) do update set seen_at = clock_timestamp(), has_free_slots = excluded.has_free_slots;

-- name: workers_announce
-- Say whether hints about new jobs are wanted: sched.wake reads it.
update sched.workers w
set has_free_slots = %(has_free_slots)s::boolean, seen_at = clock_timestamp()
where w.id = %(worker)s::uuid;

-- name: workers_leave
-- The process ends in good order. Its row stays, so that its attempts have a name.
update sched.workers w
set stopped_at = clock_timestamp(), seen_at = clock_timestamp(), has_free_slots = false
where w.id = %(worker)s::uuid;

-- name: workers_look
-- The one question an idle worker asks every second: is something claimable in its queues, will a scheduled job be
-- before the next look, is there work for the reaper? Also keeps the worker's row fresh, and writes nothing else. Takes no lock.
-- Indexes: jobs_claim, jobs_scheduled, jobs_running, jobs_waiting_order.
with seen as (
  update sched.workers w
  set seen_at = clock_timestamp(), has_free_slots = %(has_free_slots)s::boolean
  where w.id = %(worker)s::uuid
    and (w.seen_at < clock_timestamp() - interval '15 seconds' or w.has_free_slots <> %(has_free_slots)s::boolean)
)
select
  exists (select from sched.workers w where w.id = %(worker)s::uuid) as is_registered,
  exists (
    select from unnest(%(queues)s::text[]) as q (queue)
    cross join lateral (
      select from sched.jobs j where j.status = 'pending' and j.queue = q.queue limit 1) as claimable)
  or exists (select from sched.jobs j where j.status = 'scheduled' and j.available_at <= clock_timestamp()) as is_ready,
  sched.next_due(%(queues)s::text[], %(within)s::interval) is not null as is_due_soon,
  exists (
    select from sched.jobs j
    where j.status = 'running'
      and (j.lease_expires_at <= clock_timestamp()
           or j.cancel_requested_at <= clock_timestamp() - interval '30 seconds'))
  or sched.admissible_keys() is not null as is_reap_due;

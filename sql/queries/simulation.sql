-- name: simulation_next
-- The next moment at which something would happen by itself: a date is due, or the planner looks.
select least(
  (select min(o.due_at) from sched.occurrences o where o.state = 'planned' and o.due_at > %(now)s::timestamptz),
  (select min(s.plan_at) from sched.schedules s where s.plan_at > %(now)s::timestamptz));

-- name: simulation_claim
-- Everything that can start, in the order in which workers would take it.
select c.id, c.lease_token as token
from sched.claim(%(queues)s::text[], %(worker)s::uuid, %(limit)s::integer, '1 day') c;

-- name: simulation_complete
select c.outcome
from sched.complete(
  %(ids)s::bigint[], %(tokens)s::uuid[], array(select 'null'::jsonb from unnest(%(ids)s::bigint[]))) c;

-- name: simulation_ledger
-- Every date that was due before the end of the simulation, and what became of it.
select s.name as schedule, o.logical_date, o.due_at, o.state, o.reason, o.decided_at, o.job_id
from sched.occurrences o
join sched.schedules s on s.id = o.schedule_id
where o.due_at < %(until)s::timestamptz
order by o.due_at, s.name;

-- name: simulation_queues
select distinct r.queue
from sched.schedule_revisions r;

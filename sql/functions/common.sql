-- Small pieces used by the others: locks, texts, delays, wake-up.

-- The pass lock: whoever decides occurrences holds it, one transaction at a time (DESIGN: lock order pass lock,
-- schedules, limits, jobs).
create or replace function sched.pass_lock_key() returns bigint
language sql immutable parallel safe as $$ select 5923817460152739::bigint $$;

create or replace function sched.try_pass_lock() returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(sched.pass_lock_key()) $$;

create or replace function sched.take_pass_lock() returns void
language sql volatile as $$ select pg_advisory_xact_lock(sched.pass_lock_key()) $$;

-- The lock on where planned dates begin: shared by those who write planned dates, taken before the schedules; a pass
-- that takes note of it has it alone.
create or replace function sched.begin_lock_key() returns bigint
language sql immutable parallel safe as $$ select 5923817460152740::bigint $$;

create or replace function sched.share_begin_lock() returns void
language sql volatile as $$ select pg_advisory_xact_lock_shared(sched.begin_lock_key()) $$;

create or replace function sched.try_begin_lock() returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(sched.begin_lock_key()) $$;

-- Refuse an older snapshot to a function that waits for others and then reads what they wrote.
create or replace function sched.need_read_committed(p_function text) returns void
language plpgsql stable as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception '% needs isolation level read committed, not %', p_function,
      current_setting('transaction_isolation') using errcode = 'feature_not_supported';
  end if;
end
$$;

-- An instant as RFC 3339 in UTC, to the second unless it has a fraction.
create or replace function sched.rfc3339(p_at timestamptz) returns text
language sql stable parallel safe as $$
  select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
    || case when date_trunc('second', p_at) = p_at then '' else to_char(p_at at time zone 'UTC', '.US') end
    || 'Z'
$$;

-- The idempotency key of one occurrence. Generations after the first carry a suffix, so that both results stay.
create or replace function sched.occurrence_key(
  p_template text, p_schedule text, p_logical_date timestamptz, p_local_date date, p_interval_start timestamptz,
  p_generation integer
) returns text
language sql stable parallel safe as $$
  -- The default template has a short way: texts of instants are what a key costs.
  select case p_template
    when '{schedule}:{logical_date}' then p_schedule || ':' || sched.rfc3339(p_logical_date)
    else replace(replace(replace(replace(p_template,
      '{logical_date}', sched.rfc3339(p_logical_date)),
      '{local_date}', to_char(p_local_date, 'YYYY-MM-DD')),
      '{interval_start}', sched.rfc3339(p_interval_start)),
      '{schedule}', p_schedule)
    end || case when p_generation > 1 then '#' || p_generation else '' end
$$;

-- The key of the overlap slot of a schedule. "$" sorts before every name a limit can have, so that taking keys in
-- order takes overlap slots first.
create or replace function sched.overlap_key(p_schedule_id integer) returns text
language sql immutable parallel safe as $$ select '$' || p_schedule_id::text $$;

-- Delay before the attempt after p_attempt: min(max, base * 2^(attempt-1)), spread by +-jitter.
create or replace function sched.retry_delay(
  p_attempt integer, p_base interval, p_max interval, p_jitter double precision
) returns interval
language sql volatile as $$
  -- In seconds: a base of hours, doubled so often, is more than an interval can hold.
  select make_interval(secs =>
    least(date_part('epoch', p_max), date_part('epoch', p_base) * power(2, least(greatest(p_attempt, 1) - 1, 30)))
    * (1 + p_jitter * (2 * random() - 1)))
$$;

-- Whether an error may pass by itself, so that it must not become somebody's recorded fate: rollbacks, exhausted
-- resources, locks and cancels, system errors.
create or replace function sched.is_transient(p_sqlstate text) returns boolean
language sql immutable parallel safe as $$ select left(p_sqlstate, 2) in ('08', '25', '40', '53', '55', '57', '58') $$;

-- Lock the rows of keys in key order, before any job of theirs is touched.
create or replace function sched.lock_keys(p_keys text[]) returns void
language plpgsql volatile as $$
begin
  perform 1 from sched.limits l where l.key = any (p_keys) order by l.key for update;
end
$$;

-- Tell workers with free slots that these queues have something to claim. A hint only: polling is the bound. Says
-- nothing when nobody would listen, or when a stuck listener has let the notification queue fill up.
-- Without jit: its callers switch plans off, and the cost of reading workers then looks worth compiling (33 ms).
create or replace function sched.wake(p_queues text[]) returns void
language plpgsql volatile set jit = off as $$
begin
  if exists (
    select from sched.workers w
    where w.has_free_slots and w.queues && p_queues and w.seen_at > clock_timestamp() - interval '1 minute'
  ) and pg_notification_queue_usage() < 0.5 then
    perform pg_notify('sched_jobs', q) from (select distinct unnest(p_queues) as q) as queues;
  end if;
end
$$;

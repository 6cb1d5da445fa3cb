-- The tables of sched: definitions, the ledger of occurrences, the queue of jobs, and what happened to them.
-- Creates a schema of its own and touches nothing else; needs no superuser, only CREATE on the database.
-- Hot tables have no foreign keys (measured: 0.55-0.95 of the speed); `sched doctor` checks what they would.

create schema sched;

create table sched.migrations (
  version integer constraint migrations_pkey primary key,
  name text not null,
  checksum text not null,
  applied_at timestamptz not null default clock_timestamp()
);
comment on table sched.migrations is 'Migrations applied, with the SHA-256 of their text.';

create table sched.state (
  is_single boolean constraint state_pkey primary key default true,
  host text not null default 'tick',
  tzdata text,
  tzdata_changed_at timestamptz,
  last_pass_at timestamptz,
  nothing_due_before timestamptz,
  last_plan_at timestamptz,
  last_watch_at timestamptz,
  clock_apart interval,
  functions text,
  constraint state_is_single check (is_single),
  constraint state_host check (host in ('tick', 'pg_cron'))
);
comment on table sched.state is 'One row: who hosts the passes, which tz database planned, when passes last ran.';
comment on column sched.state.tzdata is 'Newest tz database that has planned; a process with older data does not plan.';
comment on column sched.state.tzdata_changed_at is 'When dates were first written with another one, newer or not; null while all come from one.';
insert into sched.state default values;

comment on column sched.state.nothing_due_before is 'What a slow look found: no planned date is due before (sched.first_due). Null: not known.';
comment on column sched.state.functions is 'SHA-256 of the functions and views that the last migrate made.';
comment on column sched.state.clock_apart is 'How far the clock of a ticker is ahead of this database''s (behind: negative), when over a minute; else null.';

create table sched.schedules (
  id integer generated always as identity constraint schedules_pkey primary key,
  name text not null constraint schedules_name unique,
  former_names text[] not null default '{}',
  owner text not null,
  revision integer not null,
  start_at timestamptz,
  end_at timestamptz,
  applied_at timestamptz not null,
  retired_at timestamptz,
  planned_until timestamptz not null,
  plan_at timestamptz not null,
  tzdata text,
  ledger_from timestamptz not null default '-infinity'
);
comment on table sched.schedules is 'A rule by name. A used name stays reserved for its schedule; retiring keeps the row.';
comment on column sched.schedules.applied_at is 'When it was first applied: nothing before fires by itself.';
comment on column sched.schedules.planned_until is 'Every expected logical date up to here has its row.';
comment on column sched.schedules.plan_at is 'When the planner must look again.';
comment on column sched.schedules.tzdata is 'The tz database its planned dates were computed with.';
comment on column sched.schedules.ledger_from is 'Logical dates at or before are pruned: not planned, fired, counted or filled.';
create index schedules_plan on sched.schedules (plan_at, id);

create table sched.schedule_revisions (
  schedule_id integer not null constraint schedule_revisions_schedule references sched.schedules (id),
  revision integer not null,
  valid_from timestamptz not null,
  valid_until timestamptz,
  hash text not null,
  definition jsonb not null,
  file text not null,
  applied_by text not null,
  job_type text not null,
  run jsonb,
  payload jsonb not null,
  key_template text not null,
  queue text not null,
  priority integer not null,
  max_attempts integer not null,
  retry_base interval not null,
  retry_max interval not null,
  retry_jitter double precision not null,
  timeout interval,
  limit_key text,
  catchup text not null,
  grace interval not null,
  max_age interval not null,
  overlap text not null,
  finish_by interval,
  on_final_failure text not null,
  constraint schedule_revisions_pkey primary key (schedule_id, revision),
  constraint schedule_revisions_catchup check (catchup in ('latest', 'all', 'none')),
  constraint schedule_revisions_overlap check (overlap in ('queue', 'allow', 'skip', 'queue_one', 'cancel_running')),
  constraint schedule_revisions_on_final_failure check (on_final_failure in ('continue', 'pause'))
);
comment on table sched.schedule_revisions is 'Each version of a definition; in force for logical dates in (valid_from, valid_until].';
comment on column sched.schedule_revisions.definition is 'The whole definition, canonical (scheduler/core/codec.py); the columns are what SQL decides by.';

create table sched.pauses (
  id bigint generated always as identity constraint pauses_pkey primary key,
  schedule_id integer not null,
  from_at timestamptz not null,
  until_at timestamptz,
  keep boolean not null default false,
  actor text not null,
  reason text
);
comment on table sched.pauses is 'Times in which a schedule does not fire, judged by due_at; keep leaves dates undecided until resume.';
create unique index pauses_open on sched.pauses (schedule_id) where until_at is null;
create index pauses_schedule on sched.pauses (schedule_id, from_at);

create table sched.occurrences (
  -- Wide columns first: nothing is lost to alignment in what is kept of every date.
  logical_date timestamptz not null,
  due_at timestamptz not null,
  interval_start timestamptz not null,
  wall timestamp,
  decided_at timestamptz,
  job_id bigint,
  schedule_id integer not null,
  revision integer not null,
  local_date date not null,
  generation smallint not null default 1,
  fold boolean not null default false,
  state text not null default 'planned',
  reason text,
  decided_by text,
  constraint occurrences_pkey primary key (schedule_id, logical_date),
  constraint occurrences_state check (state in ('planned', 'enqueued', 'skipped', 'missed', 'waived')),
  constraint occurrences_decided check ((state = 'planned') = (decided_at is null)),
  constraint occurrences_enqueued check (state <> 'enqueued' or job_id is not null)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
comment on table sched.occurrences is 'The ledger: every expected logical date, from before it is due until long after it ran.';
comment on column sched.occurrences.logical_date is 'The nominal UTC instant; never moved by jitter, shift or lateness.';
comment on column sched.occurrences.wall is 'Nominal local time before a gap moves it; null for rules in elapsed time. Once per schedule, revision and fold (sched.recorded_walls).';
comment on column sched.occurrences.fold is 'The second pass of a wall time that happens twice.';
comment on column sched.occurrences.interval_start is 'The previous expected logical date.';
create index occurrences_due on sched.occurrences (due_at, schedule_id, logical_date) where state = 'planned';

-- A planned occurrence with what its policies need, and what becomes of it (sched.due_batch, sched.fates).
create type sched.due_date as (
  schedule_id integer, logical_date timestamptz, revision integer, due_at timestamptz, interval_start timestamptz,
  schedule text, key text, catchup text, overlap text, limit_key text, max_age interval, is_late boolean
);
create type sched.fate as (
  schedule_id integer, logical_date timestamptz, revision integer, interval_start timestamptz, schedule text, key text,
  overlap text, reason text, takes_slot boolean
);

create table sched.daily_counts (
  schedule_id integer not null,
  day date not null,
  state text not null,
  reason text not null,
  dates bigint not null,
  constraint daily_counts_pkey primary key (schedule_id, day, state, reason)
);
comment on table sched.daily_counts is 'What the ledger said of pruned dates: how many per local day and outcome.';

create table sched.limits (
  key text collate "C" constraint limits_pkey primary key,
  slots integer not null,
  owner text,
  lowered_at timestamptz,
  constraint limits_slots check (slots >= 1)
);
comment on column sched.limits.lowered_at is 'When it last got fewer slots: jobs admitted before may be more until they end.';
comment on table sched.limits is 'How many jobs of a key may be admitted at once. Keys "$<id>" are the overlap slots of schedules.';

create table sched.backfills (
  id bigint generated always as identity constraint backfills_pkey primary key,
  status text not null default 'filling',
  created_at timestamptz not null default clock_timestamp(),
  completed_at timestamptz,
  actor text not null,
  reason text,
  schedules text[],
  since text not null,
  until text,
  kinds text[] not null,
  priority integer not null,
  is_descending boolean not null default false,
  is_overlap_allowed boolean not null default false,
  is_rerun boolean not null default false,
  max_active integer,
  payload jsonb,
  inserted integer not null default 0,
  already integer not null default 0,
  key_taken integer not null default 0,
  constraint backfills_status check (status in ('filling', 'filled', 'paused', 'cancelled')),
  constraint backfills_max_active check (max_active >= 1),
  constraint backfills_completed check (completed_at is null or status in ('filled', 'cancelled', 'paused'))
);
comment on table sched.backfills is 'What an operator asked to be filled, how, and what came of it.';
comment on column sched.backfills.payload is 'Merged over the payload of the definition, for this backfill only.';

create table sched.jobs (
  id bigint generated always as identity constraint jobs_pkey primary key,
  job_type text not null,
  payload jsonb not null default '{}',
  run jsonb,
  status text not null,
  origin text not null default 'enqueue',
  queue text not null default 'default',
  priority integer not null default 100,
  attempt_count integer not null default 0,
  max_attempts integer not null default 5,
  created_at timestamptz not null default clock_timestamp(),
  available_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  completed_at timestamptz,
  lease_owner uuid,
  lease_token uuid,
  lease_expires_at timestamptz,
  heartbeat_at timestamptz,
  progress real,
  progress_note text,
  lost_in_a_row integer not null default 0,
  cancel_requested_at timestamptz,
  last_error text,
  result jsonb,
  idempotency_key text,
  schedule_id integer,
  schedule text,
  logical_date timestamptz,
  generation smallint not null default 1,
  interval_start timestamptz,
  interval_end timestamptz,
  covers_from timestamptz,
  revision integer,
  backfill_id bigint,
  replay_of bigint,
  overlap_key text collate "C",
  limit_key text collate "C",
  waiting_for text collate "C",
  wait_order bigint not null default extract(epoch from clock_timestamp()),
  holds_overlap boolean not null default false,
  holds_limit boolean not null default false,
  held_by text,
  timeout interval,
  retry_base interval not null default '10 seconds',
  retry_max interval not null default '1 hour',
  retry_jitter double precision not null default 0.2,
  constraint jobs_status check (status in
    ('scheduled', 'waiting', 'pending', 'running', 'held', 'succeeded', 'dead', 'cancelled')),
  constraint jobs_origin check (origin in ('enqueue', 'schedule', 'manual', 'backfill')),
  constraint jobs_lease check ((status = 'running') =
    (lease_owner is not null and lease_token is not null and lease_expires_at is not null)),
  constraint jobs_final check ((status in ('succeeded', 'dead', 'cancelled')) = (completed_at is not null)),
  constraint jobs_waiting check ((status = 'waiting') = (waiting_for is not null)),
  constraint jobs_slots check (not (holds_overlap or holds_limit)
    or status in ('scheduled', 'waiting', 'pending', 'running')),
  constraint jobs_held_by check (held_by is null or (status = 'held' and held_by in ('pause', 'backfill', 'person'))),
  constraint jobs_progress check (progress between 0 and 1),
  constraint jobs_max_attempts check (max_attempts >= 1),
  -- What clients can represent: one value beyond it would keep a worker from reading all that it claimed.
  constraint jobs_timeout check (timeout > interval '0' and timeout <= interval '36500 days'),
  constraint jobs_instants check (
    greatest(available_at, logical_date, interval_start, interval_end, covers_from) < '9999-12-31 00:00:00+00'
    and least(available_at, logical_date, interval_start, interval_end, covers_from) > '0001-01-02 00:00:00+00')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
comment on table sched.jobs is 'The queue. Only pending jobs are in the claim index; nothing a heartbeat changes is indexed.';
comment on column sched.jobs.run is 'Settings of a shell, http or sql job; null for registered handlers.';
comment on column sched.jobs.covers_from is 'Start of the first interval this job stands for, when earlier dates were coalesced into it.';
comment on column sched.jobs.progress is 'The fraction done, as the handler of the newest attempt last said; arrives with a heartbeat.';
comment on column sched.jobs.replay_of is 'The job that a person asked to be done anew, as this one.';
comment on column sched.jobs.waiting_for is 'The key whose free slot this job waits for.';
comment on column sched.jobs.wait_order is 'Order of admission after priority: seconds of the logical date, negative for a descending backfill.';
comment on column sched.jobs.held_by is 'What holds a held job, and so what releases it; null when its handler did.';
create index jobs_claim on sched.jobs (queue, priority, available_at, id) where status = 'pending';
create index jobs_running on sched.jobs (id) where status = 'running';
create index jobs_scheduled on sched.jobs (available_at, id) where status = 'scheduled';
create index jobs_waiting_order on sched.jobs (waiting_for, priority, wait_order, id) where status = 'waiting';
create index jobs_overlap_holders on sched.jobs (overlap_key) where holds_overlap;
create index jobs_limit_holders on sched.jobs (limit_key) where holds_limit;
create index jobs_unfinished on sched.jobs (schedule_id)
  where schedule_id is not null and status in ('scheduled', 'waiting', 'pending', 'running');
create index jobs_backfill on sched.jobs (backfill_id, status) where backfill_id is not null;
create index jobs_attention on sched.jobs (status, id) where status in ('held', 'dead');
create unique index jobs_idempotency_key on sched.jobs (idempotency_key) where idempotency_key is not null;
create unique index jobs_occurrence on sched.jobs (schedule_id, logical_date, generation)
  where logical_date is not null;

create table sched.attempts (
  job_id bigint not null,
  number integer not null,
  worker uuid not null,
  lease_token uuid not null,
  started_at timestamptz not null,
  ended_at timestamptz not null,
  outcome text not null,
  error text,
  metadata jsonb not null default '{}',
  constraint attempts_pkey primary key (job_id, number),
  constraint attempts_lease_token unique (lease_token),
  constraint attempts_outcome check (outcome in
    ('succeeded', 'failed', 'timed_out', 'discarded', 'retried', 'held', 'cancelled', 'lost'))
);
comment on table sched.attempts is 'One row per spent try at a job, written when it ended.';

create table sched.job_results (
  key text constraint job_results_pkey primary key,
  result jsonb,
  produced_by bigint not null,
  attempt integer not null,
  worker uuid not null,
  created_at timestamptz not null default clock_timestamp()
);
comment on table sched.job_results is 'One result per idempotency key: the first committed one stays.';

create table sched.workers (
  id uuid constraint workers_pkey primary key,
  name text not null,
  queues text[] not null,
  concurrency integer not null,
  has_free_slots boolean not null default true,
  started_at timestamptz not null default clock_timestamp(),
  seen_at timestamptz not null default clock_timestamp(),
  stopped_at timestamptz
);
comment on table sched.workers is 'Processes that claim jobs; a random id per process start. Kept for 30 days, for their names.';

create table sched.events (
  id bigint generated always as identity constraint events_pkey primary key,
  at timestamptz not null default clock_timestamp(),
  kind text not null,
  schedule_id integer,
  logical_date timestamptz,
  job_id bigint,
  actor text,
  reason text,
  details jsonb not null default '{}'
);
comment on table sched.events is 'What was done and by whom, and what a later decision replaced.';
create index events_schedule on sched.events (schedule_id, logical_date) where schedule_id is not null;
create index events_job on sched.events (job_id) where job_id is not null;

-- The migrated schema, for reading and for noticing drift. Written by `make schema`; do not edit.

-- One row per spent try at a job, written when it ended.
table sched.attempts
  job_id bigint not null
  number integer not null
  worker uuid not null
  lease_token uuid not null
  started_at timestamp with time zone not null
  ended_at timestamp with time zone not null
  outcome text not null
  error text
  metadata jsonb not null default '{}'::jsonb
  constraint attempts_lease_token UNIQUE (lease_token)
  constraint attempts_outcome CHECK ((outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'timed_out'::text, 'discarded'::text, 'retried'::text, 'held'::text, 'cancelled'::text, 'lost'::text])))
  constraint attempts_pkey PRIMARY KEY (job_id, number)

-- What an operator asked to be filled, how, and what came of it.
table sched.backfills
  id bigint not null default identity
  status text not null default 'filling'::text
  created_at timestamp with time zone not null default clock_timestamp()
  completed_at timestamp with time zone
  actor text not null
  reason text
  schedules text[]
  since text not null
  until text
  kinds text[] not null
  priority integer not null
  is_descending boolean not null default false
  is_overlap_allowed boolean not null default false
  is_rerun boolean not null default false
  max_active integer
  payload jsonb
  inserted integer not null default 0
  already integer not null default 0
  key_taken integer not null default 0
  constraint backfills_completed CHECK (((completed_at IS NULL) OR (status = ANY (ARRAY['filled'::text, 'cancelled'::text, 'paused'::text]))))
  constraint backfills_max_active CHECK ((max_active >= 1))
  constraint backfills_pkey PRIMARY KEY (id)
  constraint backfills_status CHECK ((status = ANY (ARRAY['filling'::text, 'filled'::text, 'paused'::text, 'cancelled'::text])))

-- What the ledger said of pruned dates: how many per local day and outcome.
table sched.daily_counts
  schedule_id integer not null
  day date not null
  state text not null
  reason text not null
  dates bigint not null
  constraint daily_counts_pkey PRIMARY KEY (schedule_id, day, state, reason)

-- What was done and by whom, and what a later decision replaced.
table sched.events
  id bigint not null default identity
  at timestamp with time zone not null default clock_timestamp()
  kind text not null
  schedule_id integer
  logical_date timestamp with time zone
  job_id bigint
  actor text
  reason text
  details jsonb not null default '{}'::jsonb
  constraint events_pkey PRIMARY KEY (id)
  CREATE INDEX events_job ON sched.events USING btree (job_id) WHERE (job_id IS NOT NULL)
  CREATE INDEX events_schedule ON sched.events USING btree (schedule_id, logical_date) WHERE (schedule_id IS NOT NULL)

-- One result per idempotency key: the first committed one stays.
table sched.job_results
  key text not null
  result jsonb
  produced_by bigint not null
  attempt integer not null
  worker uuid not null
  created_at timestamp with time zone not null default clock_timestamp()
  constraint job_results_pkey PRIMARY KEY (key)

-- The queue. Only pending jobs are in the claim index; nothing a heartbeat changes is indexed.
table sched.jobs with {fillfactor=70,autovacuum_vacuum_scale_factor=0.01,autovacuum_analyze_scale_factor=0.01}
  id bigint not null default identity
  job_type text not null
  payload jsonb not null default '{}'::jsonb
  run jsonb
  status text not null
  origin text not null default 'enqueue'::text
  queue text not null default 'default'::text
  priority integer not null default 100
  attempt_count integer not null default 0
  max_attempts integer not null default 5
  created_at timestamp with time zone not null default clock_timestamp()
  available_at timestamp with time zone not null default clock_timestamp()
  started_at timestamp with time zone
  completed_at timestamp with time zone
  lease_owner uuid
  lease_token uuid
  lease_expires_at timestamp with time zone
  heartbeat_at timestamp with time zone
  progress real
  progress_note text
  lost_in_a_row integer not null default 0
  cancel_requested_at timestamp with time zone
  last_error text
  result jsonb
  idempotency_key text
  schedule_id integer
  schedule text
  logical_date timestamp with time zone
  generation smallint not null default 1
  interval_start timestamp with time zone
  interval_end timestamp with time zone
  covers_from timestamp with time zone
  revision integer
  backfill_id bigint
  replay_of bigint
  overlap_key text
  limit_key text
  waiting_for text
  wait_order bigint not null default EXTRACT(epoch FROM clock_timestamp())
  holds_overlap boolean not null default false
  holds_limit boolean not null default false
  held_by text
  timeout interval
  retry_base interval not null default '00:00:10'::interval
  retry_max interval not null default '01:00:00'::interval
  retry_jitter double precision not null default 0.2
  constraint jobs_final CHECK (((status = ANY (ARRAY['succeeded'::text, 'dead'::text, 'cancelled'::text])) = (completed_at IS NOT NULL)))
  constraint jobs_held_by CHECK (((held_by IS NULL) OR ((status = 'held'::text) AND (held_by = ANY (ARRAY['pause'::text, 'backfill'::text, 'person'::text])))))
  constraint jobs_instants CHECK (((GREATEST(available_at, logical_date, interval_start, interval_end, covers_from) < '9999-12-31 00:00:00+00'::timestamp with time zone) AND (LEAST(available_at, logical_date, interval_start, interval_end, covers_from) > '0001-01-02 00:00:00+00'::timestamp with time zone)))
  constraint jobs_lease CHECK (((status = 'running'::text) = ((lease_owner IS NOT NULL) AND (lease_token IS NOT NULL) AND (lease_expires_at IS NOT NULL))))
  constraint jobs_max_attempts CHECK ((max_attempts >= 1))
  constraint jobs_origin CHECK ((origin = ANY (ARRAY['enqueue'::text, 'schedule'::text, 'manual'::text, 'backfill'::text])))
  constraint jobs_pkey PRIMARY KEY (id)
  constraint jobs_progress CHECK (((progress >= (0)::double precision) AND (progress <= (1)::double precision)))
  constraint jobs_slots CHECK (((NOT (holds_overlap OR holds_limit)) OR (status = ANY (ARRAY['scheduled'::text, 'waiting'::text, 'pending'::text, 'running'::text]))))
  constraint jobs_status CHECK ((status = ANY (ARRAY['scheduled'::text, 'waiting'::text, 'pending'::text, 'running'::text, 'held'::text, 'succeeded'::text, 'dead'::text, 'cancelled'::text])))
  constraint jobs_timeout CHECK (((timeout > '00:00:00'::interval) AND (timeout <= '36500 days'::interval)))
  constraint jobs_waiting CHECK (((status = 'waiting'::text) = (waiting_for IS NOT NULL)))
  CREATE INDEX jobs_attention ON sched.jobs USING btree (status, id) WHERE (status = ANY (ARRAY['held'::text, 'dead'::text]))
  CREATE INDEX jobs_backfill ON sched.jobs USING btree (backfill_id, status) WHERE (backfill_id IS NOT NULL)
  CREATE INDEX jobs_claim ON sched.jobs USING btree (queue, priority, available_at, id) WHERE (status = 'pending'::text)
  CREATE UNIQUE INDEX jobs_idempotency_key ON sched.jobs USING btree (idempotency_key) WHERE (idempotency_key IS NOT NULL)
  CREATE INDEX jobs_limit_holders ON sched.jobs USING btree (limit_key) WHERE holds_limit
  CREATE UNIQUE INDEX jobs_occurrence ON sched.jobs USING btree (schedule_id, logical_date, generation) WHERE (logical_date IS NOT NULL)
  CREATE INDEX jobs_overlap_holders ON sched.jobs USING btree (overlap_key) WHERE holds_overlap
  CREATE INDEX jobs_running ON sched.jobs USING btree (id) WHERE (status = 'running'::text)
  CREATE INDEX jobs_scheduled ON sched.jobs USING btree (available_at, id) WHERE (status = 'scheduled'::text)
  CREATE INDEX jobs_unfinished ON sched.jobs USING btree (schedule_id) WHERE ((schedule_id IS NOT NULL) AND (status = ANY (ARRAY['scheduled'::text, 'waiting'::text, 'pending'::text, 'running'::text])))
  CREATE INDEX jobs_waiting_order ON sched.jobs USING btree (waiting_for, priority, wait_order, id) WHERE (status = 'waiting'::text)

-- How many jobs of a key may be admitted at once. Keys "$<id>" are the overlap slots of schedules.
table sched.limits
  key text not null
  slots integer not null
  owner text
  lowered_at timestamp with time zone
  constraint limits_pkey PRIMARY KEY (key)
  constraint limits_slots CHECK ((slots >= 1))

-- Migrations applied, with the SHA-256 of their text.
table sched.migrations
  version integer not null
  name text not null
  checksum text not null
  applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (version)

-- The ledger: every expected logical date, from before it is due until long after it ran.
table sched.occurrences with {autovacuum_vacuum_scale_factor=0.01,autovacuum_analyze_scale_factor=0.01}
  logical_date timestamp with time zone not null
  due_at timestamp with time zone not null
  interval_start timestamp with time zone not null
  wall timestamp without time zone
  decided_at timestamp with time zone
  job_id bigint
  schedule_id integer not null
  revision integer not null
  local_date date not null
  generation smallint not null default 1
  fold boolean not null default false
  state text not null default 'planned'::text
  reason text
  decided_by text
  constraint occurrences_decided CHECK (((state = 'planned'::text) = (decided_at IS NULL)))
  constraint occurrences_enqueued CHECK (((state <> 'enqueued'::text) OR (job_id IS NOT NULL)))
  constraint occurrences_pkey PRIMARY KEY (schedule_id, logical_date)
  constraint occurrences_state CHECK ((state = ANY (ARRAY['planned'::text, 'enqueued'::text, 'skipped'::text, 'missed'::text, 'waived'::text])))
  CREATE INDEX occurrences_due ON sched.occurrences USING btree (due_at, schedule_id, logical_date) WHERE (state = 'planned'::text)

-- Times in which a schedule does not fire, judged by due_at; keep leaves dates undecided until resume.
table sched.pauses
  id bigint not null default identity
  schedule_id integer not null
  from_at timestamp with time zone not null
  until_at timestamp with time zone
  keep boolean not null default false
  actor text not null
  reason text
  constraint pauses_pkey PRIMARY KEY (id)
  CREATE UNIQUE INDEX pauses_open ON sched.pauses USING btree (schedule_id) WHERE (until_at IS NULL)
  CREATE INDEX pauses_schedule ON sched.pauses USING btree (schedule_id, from_at)

-- Each version of a definition; in force for logical dates in (valid_from, valid_until].
table sched.schedule_revisions
  schedule_id integer not null
  revision integer not null
  valid_from timestamp with time zone not null
  valid_until timestamp with time zone
  hash text not null
  definition jsonb not null
  file text not null
  applied_by text not null
  job_type text not null
  run jsonb
  payload jsonb not null
  key_template text not null
  queue text not null
  priority integer not null
  max_attempts integer not null
  retry_base interval not null
  retry_max interval not null
  retry_jitter double precision not null
  timeout interval
  limit_key text
  catchup text not null
  grace interval not null
  max_age interval not null
  overlap text not null
  finish_by interval
  on_final_failure text not null
  constraint schedule_revisions_catchup CHECK ((catchup = ANY (ARRAY['latest'::text, 'all'::text, 'none'::text])))
  constraint schedule_revisions_on_final_failure CHECK ((on_final_failure = ANY (ARRAY['continue'::text, 'pause'::text])))
  constraint schedule_revisions_overlap CHECK ((overlap = ANY (ARRAY['queue'::text, 'allow'::text, 'skip'::text, 'queue_one'::text, 'cancel_running'::text])))
  constraint schedule_revisions_pkey PRIMARY KEY (schedule_id, revision)
  constraint schedule_revisions_schedule FOREIGN KEY (schedule_id) REFERENCES sched.schedules(id)

-- A rule by name. A used name stays reserved for its schedule; retiring keeps the row.
table sched.schedules
  id integer not null default identity
  name text not null
  former_names text[] not null default '{}'::text[]
  owner text not null
  revision integer not null
  start_at timestamp with time zone
  end_at timestamp with time zone
  applied_at timestamp with time zone not null
  retired_at timestamp with time zone
  planned_until timestamp with time zone not null
  plan_at timestamp with time zone not null
  tzdata text
  ledger_from timestamp with time zone not null default '-infinity'::timestamp with time zone
  constraint schedules_name UNIQUE (name)
  constraint schedules_pkey PRIMARY KEY (id)
  CREATE INDEX schedules_plan ON sched.schedules USING btree (plan_at, id)

-- One row: who hosts the passes, which tz database planned, when passes last ran.
table sched.state
  is_single boolean not null default true
  host text not null default 'tick'::text
  tzdata text
  tzdata_changed_at timestamp with time zone
  last_pass_at timestamp with time zone
  nothing_due_before timestamp with time zone
  last_plan_at timestamp with time zone
  last_watch_at timestamp with time zone
  clock_apart interval
  functions text
  constraint state_host CHECK ((host = ANY (ARRAY['tick'::text, 'pg_cron'::text])))
  constraint state_is_single CHECK (is_single)
  constraint state_pkey PRIMARY KEY (is_single)

-- Processes that claim jobs; a random id per process start. Kept for 30 days, for their names.
table sched.workers
  id uuid not null
  name text not null
  queues text[] not null
  concurrency integer not null
  has_free_slots boolean not null default true
  started_at timestamp with time zone not null default clock_timestamp()
  seen_at timestamp with time zone not null default clock_timestamp()
  stopped_at timestamp with time zone
  constraint workers_pkey PRIMARY KEY (id)

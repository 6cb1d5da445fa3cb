-- name: pgcron_server
-- Who and where we are, what is known of pg_cron from this database, and what its settings say where we may read them.
select current_database()::text as database,
       current_user::text as role,
       pg_postmaster_start_time() as server,
       (select e.extversion from pg_extension e where e.extname = 'pg_cron') as installed,
       (select a.default_version from pg_available_extensions a where a.name = 'pg_cron') as available,
       pg_has_role('pg_read_all_settings', 'usage') as is_telling,
       case when pg_has_role('pg_read_all_settings', 'usage')
            then current_setting('cron.database_name', true) end as cron_database,
       case when pg_has_role('pg_read_all_settings', 'usage')
            then current_setting('cron.use_background_workers', true) = 'on' end as is_in_background_workers,
       case when pg_has_role('pg_read_all_settings', 'usage')
            then current_setting('cron.timezone', true) end as cron_timezone,
       coalesce(case when pg_has_role('pg_read_all_settings', 'usage')
                     then current_setting('cron.launch_active_jobs', true) = 'off' end, false) as is_switched_off,
       current_setting('port')::integer as port;

-- name: pgcron_missing_here
-- Grants that the caller lacks in the database of the schedules, as statements without the role's name.
select g.statement
from (
  select 1 as place, 'grant usage on schema sched' as statement
  where not has_schema_privilege('sched', 'usage')
  union all
  select 2, 'grant select, insert, update, delete on all tables in schema sched'
  where exists (
    select from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'sched' and c.relkind = 'r'
      and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
               and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')))
  union all
  select 3, 'grant execute on all routines in schema sched'
  where exists (
    select from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'sched' and not has_function_privilege(p.oid, 'execute'))
) g
order by g.place;

-- name: pgcron_missing_there
-- Grants that the caller lacks in the database of pg_cron, as statements without the role's name.
select g.statement
from (
  select 1 as place, 'grant usage on schema cron' as statement
  where not has_schema_privilege('cron', 'usage')
  union all
  select 2, 'grant execute on function cron.' || p.proname || '(' || oidvectortypes(p.proargtypes) || ')'
  from pg_proc p
  join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = 'cron' and not has_function_privilege(p.oid, 'execute')
    and (p.proname = 'unschedule'
         or p.proname = case when %(is_elsewhere)s::boolean then 'schedule_in_database' else 'schedule' end)
  union all
  select 3, 'grant ' || w.privilege || ' on cron.' || w.relation
  from (values ('job', 'select'), ('job_run_details', 'select'), ('job_run_details', 'delete')) as w (relation, privilege)
  join pg_class c on c.relname = w.relation
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'cron' and not has_table_privilege(c.oid, w.privilege)
) g
order by g.place, g.statement;

-- name: pgcron_jobs
-- Jobs of one database of schedules, whoever's, as far as row security shows them.
select j.jobid as id, j.jobname::text as name, j.schedule, j.command, j.database::text as database,
       j.username::text as role, j.active as is_active, j.nodeport as port
from cron.job j
where j.jobname::text like %(pattern)s::text
order by j.jobname::text, j.username::text;

-- name: pgcron_last_runs
-- The newest run of each of these jobs among the last 10,000 runs of the server. Index: job_run_details_pkey.
select distinct on (d.jobid) d.jobid as id, d.status, d.return_message as message, d.start_time as started_at
from cron.job_run_details d
where d.runid > (select max(r.runid) - 10000 from cron.job_run_details r)
  and d.jobid = any (%(ids)s::bigint[])
order by d.jobid, d.runid desc;

-- name: pgcron_schedule
-- A named job of the caller in this database; one of the same name gets the new schedule and command.
select cron.schedule(%(name)s::text, %(schedule)s::text, %(command)s::text);

-- name: pgcron_schedule_in_database
-- The same for another database; needs a grant of its own.
select cron.schedule_in_database(%(name)s::text, %(schedule)s::text, %(command)s::text, %(database)s::text);

-- name: pgcron_unschedule
select cron.unschedule(%(id)s::bigint);

-- name: pgcron_forget_runs
-- The run history of these jobs.
delete from cron.job_run_details d
where d.jobid = any (%(ids)s::bigint[]);

-- name: pgcron_set_host
select sched.set_host(%(host)s::text, %(by)s::text);

-- name: pgcron_state
-- Who hosts, when passes last ran, and which schedules have a grace that does not exceed the host's beat.
select t.host, t.last_pass_at, clock_timestamp() as now,
       (select min(h.ends_at) from sched.horizon h) as horizon_ends_at,
       (select h.schedule from sched.horizon h limit 1) as horizon_ends_first,
       array(select s.name from sched.schedules s
             join sched.schedule_revisions r on r.schedule_id = s.id and r.revision = s.revision
             where s.retired_at is null and r.grace <= %(beat)s::interval
             order by s.name) as hasty
from sched.state t;

-- name: pgcron_beat
-- Not explainable, like every call; see sql/functions/housekeeping.sql.
call sched.beat(%(by)s::text);

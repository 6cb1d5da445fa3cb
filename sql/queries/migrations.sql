-- name: migrations_lock_timeout
-- A migration waits this long for a lock, then gives up and leaves the database as it was.
select set_config('lock_timeout', %(timeout)s, true);

-- name: migrations_lock
-- One migration at a time per database; released at the end of the transaction.
select pg_advisory_xact_lock(5923817460152738);

-- name: migrations_exist
select to_regclass('sched.migrations') is not null;

-- name: migrations_list
select version, name, checksum
from sched.migrations
order by version;

-- name: migrations_record
insert into sched.migrations (version, name, checksum)
values (%(version)s, %(name)s, %(checksum)s);

-- name: migrations_record_functions
update sched.state s set functions = %(checksum)s::text where s.functions is distinct from %(checksum)s::text;

-- name: migrations_functions
select s.functions from sched.state s;

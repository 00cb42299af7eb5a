-- Who runs what. A lease is shown only while its advisory lock is held: a dead worker's leases vanish with its session.
create or replace view jeet.leases as
select f.name as function, t.stage, t.partition, t.worker_id as worker, t.epoch, t.acquired_at, t.backend_pid
  from jeet_internal.task t
  join jeet_internal.function f on f.id = t.function_id
  join pg_locks l on l.locktype = 'advisory' and l.classid = 0x4A656574::oid and l.objid = t.id::oid and l.objsubid = 2
                 and l.database = (select d.oid from pg_database d where d.datname = current_database())
                 and l.granted and l.pid = t.backend_pid
 where t.worker_id is not null;

comment on view jeet.leases is 'Which worker runs which task now: leases whose lock is held';
comment on column jeet.leases.function is 'the function';
comment on column jeet.leases.stage is 'the stage of its graph, from 0';
comment on column jeet.leases.partition is 'the partition';
comment on column jeet.leases.worker is 'the worker, as in jeet.workers.id';
comment on column jeet.leases.epoch is 'rises with each takeover and control change; a commit under an older epoch is refused';
comment on column jeet.leases.acquired_at is 'when the worker took the task';
comment on column jeet.leases.backend_pid is 'the Postgres session that holds the lock';

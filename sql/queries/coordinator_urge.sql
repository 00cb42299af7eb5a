-- A takeover of the tasks $2 takes long: end sessions that hold their locks ($1 the class) though they belong to no
-- worker that lives, and tell the workers to look again.
with strays as materialized (
    select distinct l.pid
      from pg_locks l
     where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())
       and l.classid = $1::int::oid and l.objsubid = 2 and l.granted and l.objid::bigint = any ($2::bigint[])
       and not exists (select from jeet_internal.worker w where w.backend_pid = l.pid and w.status <> 'lost')
)
select count(*) filter (where pg_terminate_backend(s.pid)) as ended, pg_notify('jeet_control', 'assign')
  from (select 1) as once left join strays s on true

-- A client that is no process of Jeet holds locks on its tables in one long transaction: publishers, commits or takeovers
-- wait for it. Who only reads is not meant.
create or replace view jeet_internal.rule_lock_held as
with holder as (
    select a.pid, a.usename::text, a.application_name, a.state, a.xact_start,
           (array_agg(distinct l.relation::regclass::text))[1:4] as tables
      from pg_stat_activity a
      join pg_locks l on l.pid = a.pid and l.locktype = 'relation' and l.granted and l.mode <> 'AccessShareLock'
      join pg_class c on c.oid = l.relation and c.relnamespace = 'jeet_internal'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
     where a.datname = current_database() and l.database = (select oid from pg_database where datname = current_database())
       and a.backend_type = 'client backend' and a.pid <> pg_backend_pid() and a.application_name not like 'jeet-%'
       and a.xact_start < clock_timestamp() - jeet_internal.threshold_span('lock_s')
     group by a.pid, a.usename, a.application_name, a.state, a.xact_start
)
select format('pid %s holds locks on %s for %s', h.pid, array_to_string(h.tables, ', '), date_trunc('second', clock_timestamp() - h.xact_start)) as observation,
       'a client that published, or changed tables, and does not commit; who needs the same rows waits for it' as likely_cause,
       format('user %s, application %s, %s; %s sessions wait for it', h.usename, coalesce(nullif(h.application_name, ''), '(none)'), h.state,
              (select count(*) from pg_locks w where not w.granted and h.pid = any (pg_blocking_pids(w.pid)))) as evidence,
       format('have it commit, or end it: select pg_terminate_backend(%s)', h.pid) as action,
       h.xact_start as since, jsonb_build_object('pid', h.pid, 'user', h.usename, 'application', h.application_name) as figures
  from holder h;

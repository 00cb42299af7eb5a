-- End the sessions that keep session %(pid)s waiting and do not wait themselves: a worker's at once, others once patience
-- is over.
select a.pid, a.application_name
  from pg_stat_activity a
 where a.pid = any (pg_blocking_pids(%(pid)s)) and cardinality(pg_blocking_pids(a.pid)) = 0
   and (%(anyone)s or a.application_name like 'jeet-worker%%')
   and pg_terminate_backend(a.pid)

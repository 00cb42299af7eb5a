-- End the sessions that keep session %(pid)s waiting and do not wait themselves: a worker's at once, others once patience
-- is over. Ended in the list of results, not in the condition, whose parts Postgres evaluates in the order that it likes.
with blocker as materialized (
    select a.pid, a.application_name
      from pg_stat_activity a
     where a.pid = any (pg_blocking_pids(%(pid)s)) and cardinality(pg_blocking_pids(a.pid)) = 0
       and (%(anyone)s or a.application_name like 'jeet-worker%%')
)
select b.pid, b.application_name from blocker b where pg_terminate_backend(b.pid)

-- End the backends that keep $1 waiting: a worker's at once, others when $2 says that patience is over, never $3.
-- Ended in the list of results, not in the condition, whose parts Postgres evaluates in the order that it likes.
with blocker as materialized (
    select a.pid, a.application_name
      from pg_stat_activity a
     where a.pid = any (pg_blocking_pids($1)) and a.pid <> $3
       and ($2 or a.application_name like 'jeet-worker%')
)
select b.pid, b.application_name, pg_terminate_backend(b.pid) as ended from blocker b

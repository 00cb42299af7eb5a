-- End the sessions of a lost worker: its lease session, and with it the locks that keep others out, first and waited
-- for; then the others, which could hold rows in an open transaction. Reused process ids are told by their start.
with lease as materialized (
    select a.pid, pg_terminate_backend(a.pid, 500) as ended
      from jeet_internal.worker w
      join pg_stat_activity a on a.pid = w.backend_pid and a.backend_start = w.backend_start
     where w.id = $1::int and w.status = 'lost'
), others as materialized (
    select a.pid, pg_terminate_backend(a.pid) as ended
      from jeet_internal.worker w
      join pg_stat_activity a on a.application_name ~ ('^jeet-worker/' || w.id || '\M') and a.datname = current_database()
     where w.id = $1::int and w.status = 'lost' and a.pid not in (select l.pid from lease l)
)
select (select count(*) from lease where ended) + (select count(*) from others where ended) as ended

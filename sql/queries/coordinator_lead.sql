-- Try to become the leader, and say who leads, in one statement: whoever holds the lock has written the row.
-- $1, $2 the lock; $3 host; $4 process id. One row if this session leads now, none if another one does.
with elected as materialized (select pg_try_advisory_lock($1::int, $2::int) as mine)
insert into jeet_internal.leader as l (host, pid, backend_pid, backend_start)
select $3::text, $4::int, a.pid, a.backend_start
  from elected, pg_stat_activity a
 where elected.mine and a.pid = pg_backend_pid()
    on conflict (role) do update
   set host = excluded.host, pid = excluded.pid, backend_pid = excluded.backend_pid, backend_start = excluded.backend_start,
       since = clock_timestamp(), heartbeat_at = clock_timestamp()
returning l.backend_pid

-- End a frozen leader's session, and with it its lock, unless it has come back to life.
select pg_terminate_backend(l.backend_pid, 500)
  from jeet_internal.leader l
  join pg_stat_activity a on a.pid = l.backend_pid and a.backend_start = l.backend_start
 where l.backend_pid = $1::int and l.backend_start = $2::timestamptz and l.heartbeat_at = $3::timestamptz

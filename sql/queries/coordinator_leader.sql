-- The leader whose session is still there, and whether its heartbeat is older than $1 seconds.
select l.host, l.pid, l.backend_pid, l.backend_start, l.heartbeat_at,
       l.heartbeat_at < clock_timestamp() - make_interval(secs => $1::float8) as silent
  from jeet_internal.leader l
  join pg_stat_activity a on a.pid = l.backend_pid and a.backend_start = l.backend_start

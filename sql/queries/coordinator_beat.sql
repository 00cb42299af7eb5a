-- The leader lives. No row: another session leads, so this one must stop.
update jeet_internal.leader
   set heartbeat_at = clock_timestamp()
 where backend_pid = pg_backend_pid()
returning true

-- Every worker that is not known to be lost. Its liveness lock can be had ($1 the lock's class) only if its session is
-- gone; had here, the lock lasts to the end of this statement. The row appears in the transaction that takes the lock.
select w.id, w.host, w.pid, w.status, w.heartbeat_at, w.plugin_hash,
       extract(epoch from clock_timestamp() - w.heartbeat_at)::float8 as silent_s,
       pg_try_advisory_xact_lock($1::int, w.id) as gone
  from jeet_internal.worker w
 where w.status <> 'lost'
 order by w.id

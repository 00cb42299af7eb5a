-- The row becomes visible with its liveness lock already held: a worker without the lock is a dead one.
with w as (
    insert into jeet_internal.worker (process, host, pid, version, plugin_hash, backend_pid, backend_start)
    select %(process)s, %(host)s, %(pid)s, %(version)s, %(plugin_hash)s, pid, backend_start
      from pg_stat_activity where pid = pg_backend_pid()
    returning id)
select w.id, pg_backend_pid(), pg_advisory_lock(%(worker_class)s, w.id) from w

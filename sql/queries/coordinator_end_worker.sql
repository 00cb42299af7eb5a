-- End the lease session of a lost worker, and with it the locks that keep others out; waits until it is gone. A reused
-- process id is told by its start. What other sessions of the worker still hold, whoever takes its tasks over ends.
select count(*) filter (where pg_terminate_backend(s.pid, 500)) as ended
  from (select a.pid
          from jeet_internal.worker w
          join pg_stat_activity a on a.pid = w.backend_pid and a.backend_start = w.backend_start
         where w.id = $1::int and w.status = 'lost'
        offset 0) s

-- Workers, those that are lost or draining first.
select id, host, pid, version, status, tasks, busy, memory_bytes, heartbeat_age
  from jeet.workers order by status = 'running', heartbeat_age < interval '5 seconds', id

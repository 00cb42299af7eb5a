select id, host, pid, version, status, tasks, heartbeat_age, started_at from jeet.workers order by id;

-- A worker was taken for lost and its process has not come back; told until others run what it ran, and for lost_s. Where none is
-- left, no_workers tells.
create or replace view jeet_internal.rule_worker_lost as
select format('worker %s on %s was lost', w.id, w.host) as observation,
       'its process was killed, froze, or lost the database' as likely_cause,
       format('last heartbeat %s, pid %s', date_trunc('second', w.heartbeat_at), w.pid) as evidence,
       case when n.tasks = 0 then 'look at its log; others run its tasks'
            else format('look at its log; nobody has taken over %s yet', jeet_internal.counted(n.tasks, 'task')) end as action,
       w.heartbeat_at as since, jsonb_build_object('worker', w.id, 'host', w.host, 'pid', w.pid, 'tasks', n.tasks) as figures
  from jeet_internal.worker w
 cross join lateral (select count(*) as tasks from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
                      where t.worker_id = w.id and t.status = 'running' and f.status = 'running') n
 where w.status = 'lost'
   and (w.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('lost_s')
        or n.tasks > 0)
   and not exists (select from jeet_internal.rule_no_workers)
   and not exists (select from jeet_internal.worker o where o.process = w.process and o.id > w.id);

-- A worker was taken for lost and its process has not come back; told until others run what it ran, and for lost_s.
create or replace view jeet_internal.rule_worker_lost as
select format('worker %s on %s was lost', w.id, w.host) as observation,
       'its process was killed, froze, or lost the database' as likely_cause,
       format('last heartbeat %s, pid %s', date_trunc('second', w.heartbeat_at), w.pid) as evidence,
       'look at its log; its tasks were given to others' as action,
       w.heartbeat_at as since, jsonb_build_object('worker', w.id, 'host', w.host, 'pid', w.pid) as figures
  from jeet_internal.worker w
 where w.status = 'lost'
   and (w.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('lost_s')
        or exists (select from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
                    where t.worker_id = w.id and t.status = 'running' and f.status = 'running'))
   and not exists (select from jeet_internal.worker n where n.process = w.process and n.id > w.id);

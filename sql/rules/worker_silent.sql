-- A worker sends no heartbeats, and no coordinator has drawn the consequence yet.
create or replace view jeet_internal.rule_worker_silent as
select format('worker %s on %s is silent', w.id, w.host) as observation,
       'its process is frozen, or it cannot reach the database' as likely_cause,
       format('last heartbeat %s, pid %s', date_trunc('second', w.heartbeat_at), w.pid) as evidence,
       'a coordinator takes its tasks away; if none runs, start one: jeet coordinator' as action,
       w.heartbeat_at as since, jsonb_build_object('worker', w.id, 'host', w.host, 'pid', w.pid) as figures
  from jeet_internal.worker w
 where w.status <> 'lost' and w.heartbeat_at < clock_timestamp() - jeet_internal.threshold_span('silent_s');

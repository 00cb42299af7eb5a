-- Functions are deployed and no worker sends heartbeats.
create or replace view jeet_internal.rule_no_workers as
with waiting as (
    select count(*) as tasks
      from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
     where f.status = 'running' and t.status = 'running'
), seen as (
    select max(heartbeat_at) as at, count(*) filter (where status = 'running'
               and heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('silent_s')) as alive
      from jeet_internal.worker
)
select format(case w.tasks when 1 then 'no worker is running, 1 task waits' else 'no worker is running, %s tasks wait' end, w.tasks) as observation,
       'worker processes ended, or were never started, or cannot reach the database' as likely_cause,
       case when s.at is null then 'no worker is known'
            else format('last heartbeat of any worker: %s', date_trunc('second', s.at)) end as evidence,
       'start workers: jeet worker (jeet up starts them itself)' as action,
       s.at as since, jsonb_build_object('tasks', w.tasks) as figures
  from waiting w, seen s
 where s.alive = 0 and w.tasks > 0;

-- Workers are alive, and yet nobody runs a task that should run.
create or replace view jeet_internal.rule_tasks_unowned as
select format(case count(*) when 1 then '%s task of %s has no owner' else '%s tasks of %s have no owner' end, count(*), f.name) as observation,
       'workers are alive but do not take them, or the coordinator does not assign them' as likely_cause,
       format('longest without owner since %s', date_trunc('second', min(t.unowned_since))) as evidence,
       'look at the coordinator''s log' as action,
       min(t.unowned_since) as since, jsonb_build_object('function', f.name, 'tasks', count(*)) as figures
  from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
 where f.status = 'running' and t.status = 'running' and t.worker_id is null
   and t.unowned_since < clock_timestamp() - jeet_internal.threshold_span('unowned_s')
   and not jeet_internal.is_at_rest(f.id)
   and not exists (select from jeet_internal.rule_no_workers)
   and not exists (select from jeet_internal.rule_no_coordinator)
 group by f.name;

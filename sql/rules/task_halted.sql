-- A task stopped where it was, as its function asks for, or as what it should read is gone.
create or replace view jeet_internal.rule_task_halted as
select format('partition %s of %s is halted', t.partition, f.name) as observation,
       'an event failed and the function says onError: halt, or events were lost to retention' as likely_cause,
       coalesce(t.halt_reason, 'no reason was recorded') as evidence,
       format('mend the function and deploy it; where the cause is gone, let it try again: jeet resume %s', f.name) as action,
       t.committed_at as since, jsonb_build_object('function', f.name, 'stage', t.stage, 'partition', t.partition) as figures
  from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
 where t.status = 'halted';

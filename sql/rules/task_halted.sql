-- A task stopped where it was, as its function asks for, or as what it should read is gone.
create or replace view jeet_internal.rule_task_halted as
select format('partition %s of %s is halted', t.partition, f.name) as observation,
       'an event failed and the function says onError: halt, or events were lost to retention' as likely_cause,
       coalesce(t.halt_reason, 'no reason was recorded')
           || coalesce('; too much waits behind it: stage ' || h.stages || ' stands still in all partitions', '') as evidence,
       format('mend the function and deploy it; where the cause is gone, let it try again: jeet resume %s', f.name) as action,
       t.committed_at as since, jsonb_build_object('function', f.name, 'stage', t.stage, 'partition', t.partition) as figures
  from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
 cross join lateral (select string_agg(distinct b.stage::text, ', ') as stages  -- those before it that wait (my_tasks.sql)
                       from jeet_internal.stage g
                       join jeet_internal.stream s on s.id = any (g.inputs) and s.internal and s.over_lag and not s.in_cycle
                       join jeet_internal.stage b on b.function_id = g.function_id and b.version = g.version and s.id = any (b.outputs)
                      where g.function_id = f.id and g.version = f.version and g.stage = t.stage) h
 where t.status = 'halted';

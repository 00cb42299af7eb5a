-- Events failed and wait in the dead letters for somebody to look at them.
create or replace view jeet_internal.rule_dead_letters as
select format('%s open dead letter%s of %s', count(*), case when count(*) > 1 then 's' end, f.name) as observation,
       'events that the function could not process' as likely_cause,
       format('latest: %s', (array_agg(case when length(d.error) <= 200 then d.error else left(d.error, 199) || '…' end order by d.failed_at desc))[1]) as evidence,
       format('look at them: jeet dlq list %s; when mended: jeet dlq redrive %s --all', f.name, f.name) as action,
       min(d.failed_at) as since, jsonb_build_object('function', f.name, 'dead_letters', count(*)) as figures
  from jeet_internal.dead_letter d join jeet_internal.task t on t.id = d.task_id join jeet_internal.function f on f.id = t.function_id
 where d.status = 'open'
 group by f.name;

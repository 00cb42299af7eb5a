-- Every task that is to be run, who should run it now, the plugin that it needs (if there is no source to compile for
-- another), and how far it has come.
select t.id, t.function_id, a.worker_id as assigned, case when v.source is null then v.plugin_hash end as plugin,
       (select coalesce(sum(c.next_offset), 0)::bigint from jeet_internal.checkpoint c where c.task_id = t.id) as position
  from jeet_internal.task t
  join jeet_internal.function f on f.id = t.function_id
  left join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
  left join jeet_internal.assignment a on a.task_id = t.id
 where t.status = 'running' and f.status <> 'paused'
 order by t.id

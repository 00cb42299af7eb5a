-- How far a function has come in running what it is to run: all tasks, those that do not run it yet (stage and partition of
-- each), and who could help.
select count(*)::int as tasks,
       coalesce(array_agg(t.partition order by t.stage, t.partition) filter (where w.id is null or t.version <> f.version), '{}') as missing,
       coalesce(array_agg(t.stage order by t.stage, t.partition) filter (where w.id is null or t.version <> f.version), '{}') as stages,
       (select count(*)::int from jeet_internal.worker r where r.status = 'running') as workers,
       exists (select from jeet_internal.leader l where l.heartbeat_at > clock_timestamp() - interval '5 s') as coordinator
  from jeet_internal.function f
  join jeet_internal.task t on t.function_id = f.id
  left join jeet_internal.worker w on w.id = t.worker_id and w.status = 'running'
 where f.id = %(function)s

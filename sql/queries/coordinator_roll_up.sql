-- A function has failed while one of its tasks is halted; its other tasks go on. A paused one stays paused.
with wanted as (
    select f.id, case when exists (select from jeet_internal.task t where t.function_id = f.id and t.status = 'halted')
                      then 'failed' else 'running' end as status
      from jeet_internal.function f
     where f.status <> 'paused'
)
update jeet_internal.function f
   set status = w.status
  from wanted w
 where w.id = f.id and f.status <> w.status and f.status <> 'paused'
returning f.name, f.status

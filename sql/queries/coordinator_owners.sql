-- Of the tasks $1, those that are to be run, each with the running worker that holds its lease, or null.
select t.id, w.id as owner
  from jeet_internal.task t
  join jeet_internal.function f on f.id = t.function_id
  left join jeet_internal.worker w on w.id = t.worker_id and w.status = 'running'
 where t.id = any ($1::int[]) and t.status = 'running' and f.status <> 'paused'

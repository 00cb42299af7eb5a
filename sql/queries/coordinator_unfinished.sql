-- Lost workers that are still written down as owners of tasks that are to be run: their redistribution is not over.
select w.id, array_agg(t.id order by t.id) as tasks,
       extract(epoch from clock_timestamp() - w.heartbeat_at)::float8 as silent_s
  from jeet_internal.worker w
  join jeet_internal.task t on t.worker_id = w.id
  join jeet_internal.function f on f.id = t.function_id
 where w.status = 'lost' and t.status = 'running' and f.status <> 'paused'
 group by w.id
 order by w.id

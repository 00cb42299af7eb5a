-- What a worker should run now, with what may have changed since it began: one statement a heartbeat, the truth behind
-- every notification. A task whose output stream is over its limit waits, unless its own output leads back to its input.
select t.id as task_id, t.epoch, t.worker_id,
       exists (select from jeet_internal.inbox i where i.task_id = t.id) as has_inbox,
       exists (select from jeet_internal.stage s join jeet_internal.stream o on o.id = any (s.outputs)
                where s.function_id = t.function_id and s.version = t.version and s.stage = t.stage
                  and o.over_lag and not o.in_cycle) as sink_full
  from jeet_internal.assignment a
  join jeet_internal.task t on t.id = a.task_id
  join jeet_internal.function f on f.id = t.function_id
 where a.worker_id = $1 and f.status <> 'paused' and t.status = 'running'

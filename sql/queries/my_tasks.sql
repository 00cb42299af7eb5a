-- What worker $1 should run now, with what may have changed since it began: one statement a heartbeat, the truth behind
-- every notification. A task waits while what reads an output of its is further behind than the stream's max_lag, or, between
-- two stages, than $2 events, unless that output leads back to its input. This is judged here, once a stage, and not by the
-- flag that the coordinator keeps: tasks go on, and wait, while no coordinator leads.
with mine as materialized (
    select t.id, t.epoch, t.worker_id, t.function_id, t.version, t.stage
      from jeet_internal.assignment a
      join jeet_internal.task t on t.id = a.task_id
      join jeet_internal.function f on f.id = t.function_id
     where a.worker_id = $1 and f.status <> 'paused' and t.status = 'running'
), held as materialized (
    select g.function_id, g.version, g.stage
      from (select distinct m.function_id, m.version, m.stage from mine m) m
      join jeet_internal.stage g using (function_id, version, stage)
     where exists (select from jeet_internal.stream o
                    where o.id = any (g.outputs) and not o.in_cycle and (o.internal or o.max_lag is not null)
                      -- A rebuild sends others nothing (acquire_tasks), so it waits for none of them.
                      and (o.internal or not exists (select from jeet_internal.rebuild r where r.function_id = m.function_id
                                                        and r.phase <> 'settle' and not r.outputs))
                      and jeet_internal.stream_lag(o.id) > case when o.internal then $2::bigint else o.max_lag end)
)
select m.id as task_id, m.epoch, m.worker_id,
       exists (select from jeet_internal.inbox i where i.task_id = m.id) as has_inbox,
       exists (select from held h where h.function_id = m.function_id and h.version = m.version and h.stage = m.stage) as sink_full
  from mine m

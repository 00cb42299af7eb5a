-- Where a savepoint has the sources of its function, by stage and partition; where the function %(function)s stands in them,
-- if it reads them; and what of them the log has, which may change until their heads are locked (hold_sources).
select c.stream, o.stage, o.partition, c.next_offset, now.next_offset as now, h.head, h.first_offset
  from jeet_internal.savepoint_checkpoint c
  join jeet_internal.savepoint_task o on o.savepoint_id = c.savepoint_id and o.task_id = c.task_id
  left join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = o.partition
  left join (jeet_internal.task t join jeet_internal.checkpoint now on now.task_id = t.id)
         on t.id = c.task_id and t.function_id = %(function)s and now.stream_id = c.stream_id
 where c.savepoint_id = %(savepoint)s and not c.internal
 order by c.stream, o.stage, o.partition

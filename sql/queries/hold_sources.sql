-- Locks the heads of all that a function reads, in the order in which appends lock them, so that nothing of it can be dropped until
-- the checkpoints that name it are committed. Whoever publishes there waits: it is the last thing that a change does.
-- A row for each checkpoint of a source that names events which are not there.
with head as materialized (
    select h.stream_id, h.partition, h.head, h.first_offset
      from jeet_internal.head h
     where h.stream_id in (select c.stream_id from jeet_internal.checkpoint c join jeet_internal.task t on t.id = c.task_id
                            where t.function_id = %(function)s)
     order by h.stream_id, h.partition
       for share
)
select s.name as stream, t.partition, c.next_offset, h.head, h.first_offset
  from jeet_internal.task t
  join jeet_internal.checkpoint c on c.task_id = t.id
  join jeet_internal.stream s on s.id = c.stream_id and not s.internal
  left join head h on h.stream_id = c.stream_id and h.partition = t.partition
 where t.function_id = %(function)s and (h.head is null or c.next_offset not between h.first_offset and h.head)
 order by s.name, t.partition

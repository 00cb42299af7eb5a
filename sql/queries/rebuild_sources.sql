-- The sources of a function by partition: how many events it has read of them, and which one is the first that there is. The
-- heads are locked until the checkpoints hold what is there.
with head as materialized (
    select h.stream_id, h.partition, h.first_offset
      from jeet_internal.head h
     where h.stream_id in (select c.stream_id from jeet_internal.checkpoint c join jeet_internal.task t on t.id = c.task_id
                            where t.function_id = %(function)s)
     order by h.stream_id, h.partition
       for share
)
select s.name as stream, t.partition, h.first_offset, greatest(c.next_offset - h.first_offset, 0) as events
  from jeet_internal.task t
  join jeet_internal.checkpoint c on c.task_id = t.id
  join jeet_internal.stream s on s.id = c.stream_id and not s.internal
  join head h on h.stream_id = s.id and h.partition = t.partition
 where t.function_id = %(function)s
 order by s.name, t.partition

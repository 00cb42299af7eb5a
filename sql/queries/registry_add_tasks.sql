-- A task for each partition of the source, each with a checkpoint where it is to begin. The heads are locked, so that
-- what the checkpoints name cannot be dropped before they are seen.
with head as materialized (
    select h.partition, h.head, h.first_offset
      from jeet_internal.head h
     where h.stream_id = %(source)s
     order by h.partition
       for share
), task as (
    insert into jeet_internal.task (function_id, stage, partition, version)
    select %(function)s, 0, h.partition, 1 from head h order by h.partition
    returning id, partition
)
insert into jeet_internal.checkpoint (task_id, stream_id, next_offset)
select t.id, %(source)s,
       case %(start)s
           when 'latest' then h.head
           when 'offset' then greatest(h.first_offset, least(%(offset)s::bigint, h.head))
           when 'time' then jeet_internal.offset_at(%(source)s, h.partition, %(time)s::timestamptz)
           else h.first_offset
       end
  from task t
  join head h on h.partition = t.partition

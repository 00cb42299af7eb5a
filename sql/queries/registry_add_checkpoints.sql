-- For each task of a stage that does not read the stream yet, a checkpoint where it is to begin: where the function's
-- tasks stand in it already (%(keep)s), else as told. The heads are locked, so that what the checkpoints name cannot be
-- dropped before they are seen.
with head as materialized (
    select h.partition, h.head, h.first_offset
      from jeet_internal.head h
     where h.stream_id = %(stream)s
     order by h.partition
       for share
), stand as (
    select t.partition, min(c.next_offset) as next_offset, min(c.watermark) as watermark
      from jeet_internal.task t
      join jeet_internal.checkpoint c on c.task_id = t.id and c.stream_id = %(stream)s
     where t.function_id = %(function)s and %(keep)s
     group by t.partition
)
insert into jeet_internal.checkpoint (task_id, stream_id, next_offset, watermark)
select t.id, %(stream)s,
       coalesce(s.next_offset, case %(start)s
           when 'latest' then h.head
           when 'offset' then greatest(h.first_offset, least(%(offset)s::bigint, h.head))
           when 'time' then jeet_internal.offset_at(%(stream)s, h.partition, %(time)s::timestamptz)
           else h.first_offset
       end), s.watermark
  from jeet_internal.task t
  join head h on h.partition = t.partition
  left join stand s on s.partition = t.partition
 where t.function_id = %(function)s and t.stage = %(stage)s
    on conflict do nothing

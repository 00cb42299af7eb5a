-- Puts the tasks of a stage where a stream is to be read from next, and says how far that is from where they stood. The heads
-- are locked already (hold_sources). %(clear)s: what was seen of its event time is forgotten.
with place as materialized (
    select c.task_id, c.next_offset as before,
           case %(start)s
               when 'latest' then h.head
               when 'offset' then greatest(h.first_offset, least(%(offset)s::bigint, h.head))
               when 'time' then jeet_internal.offset_at(%(stream)s, h.partition, %(time)s::timestamptz)
               else h.first_offset
           end as after
      from jeet_internal.task t
      join jeet_internal.checkpoint c on c.task_id = t.id and c.stream_id = %(stream)s
      join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
     where t.function_id = %(function)s and t.stage = %(stage)s
), moved as (
    update jeet_internal.checkpoint c
       set next_offset = p.after, watermark = case when %(clear)s then null else c.watermark end
      from place p
     where c.task_id = p.task_id and c.stream_id = %(stream)s
)
select coalesce(sum(greatest(p.before - p.after, 0)), 0)::bigint as again,
       coalesce(sum(greatest(p.after - p.before, 0)), 0)::bigint as skipped
  from place p

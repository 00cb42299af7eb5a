-- How far each stage of a function has come in the streams that it reads, and each stream that it reads or writes, now.
with stage as (
    select g.stage, g.inputs, g.outputs
      from jeet_internal.function f
      join jeet_internal.stage g on g.function_id = f.id and g.version = f.version
     where f.id = %(function)s
)
select t.stage, s.name as stream, sum(c.next_offset)::bigint as position, sum(greatest(h.head - c.next_offset, 0))::bigint as lag,
       extract(epoch from clock_timestamp())::float8 as at_s
  from stage g
  join jeet_internal.task t on t.function_id = %(function)s and t.stage = g.stage
  join jeet_internal.checkpoint c on c.task_id = t.id and c.stream_id = any (g.inputs)
  join jeet_internal.stream s on s.id = c.stream_id
  join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
 group by t.stage, s.name
union all
select null, s.name, sum(h.head)::bigint, 0, extract(epoch from clock_timestamp())::float8
  from jeet_internal.stream s
  join jeet_internal.head h on h.stream_id = s.id
 where s.id in (select unnest(g.inputs || g.outputs) from stage g)
 group by s.name

-- How many events the slowest stage that reads a stream now has before it, over all its partitions; null: nobody reads it.
create or replace function jeet_internal.stream_lag(p_stream int) returns bigint language sql stable cost 1000 as $$
    select max(reader.lag)::bigint
      from (select sum(h.head - c.next_offset) as lag
              from jeet_internal.checkpoint c
              join jeet_internal.task t on t.id = c.task_id
              join jeet_internal.function f on f.id = t.function_id
              join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = t.stage
              join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
             where c.stream_id = p_stream and p_stream = any (g.inputs)
             group by t.function_id, t.stage) reader
$$;

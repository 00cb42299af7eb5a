-- Which streams are past their max_lag, or, between two stages of a function, past $1: behind is the slowest stage that reads
-- the stream, over all its partitions. A stream that nobody reads now has no lag.
with behind as (
    select s.id, b.max_lag,
           coalesce((select max(each.lag)
                       from (select sum(h.head - c.next_offset) as lag
                               from jeet_internal.checkpoint c
                               join jeet_internal.task t on t.id = c.task_id
                               join jeet_internal.function f on f.id = t.function_id
                               join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = t.stage
                               join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                              where c.stream_id = s.id and s.id = any (g.inputs)
                              group by t.function_id, t.stage) each), 0) as lag
      from jeet_internal.stream s
     cross join lateral (select case when s.internal then $1::bigint else s.max_lag end as max_lag) b
     where b.max_lag is not null or s.over_lag
)
update jeet_internal.stream s
   set over_lag = coalesce(b.lag > b.max_lag, false)
  from behind b
 where b.id = s.id and s.over_lag <> coalesce(b.lag > b.max_lag, false)
returning s.name, s.over_lag, b.lag::bigint as lag, b.max_lag

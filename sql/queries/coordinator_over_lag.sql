-- Which streams are past their max_lag: behind is the slowest function that reads the stream, over all its partitions.
-- A stream that nobody reads has no lag.
with behind as (
    select s.id, s.max_lag,
           coalesce((select max(each.lag)
                       from (select sum(h.head - c.next_offset) as lag
                               from jeet_internal.checkpoint c
                               join jeet_internal.task t on t.id = c.task_id
                               join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                              where c.stream_id = s.id
                              group by t.function_id, t.stage) each), 0) as lag
      from jeet_internal.stream s
     where s.max_lag is not null or s.over_lag
)
update jeet_internal.stream s
   set over_lag = coalesce(b.lag > b.max_lag, false)
  from behind b
 where b.id = s.id and s.over_lag <> coalesce(b.lag > b.max_lag, false)
returning s.name, s.over_lag, b.lag::bigint as lag, s.max_lag

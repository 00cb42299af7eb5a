-- Streams for `jeet streams`.
select name, partitions, key, retention, head - first_offset as events, head, bytes, max_lag, over_lag
  from jeet.streams
 order by name

-- Streams for `jeet streams --all`.
select name, null as function, partitions, key, retention, head - first_offset as events, head, bytes, max_lag, over_lag
  from jeet.streams
union all
select name, function, partitions, null, retention, head - first_offset, head, bytes, null, false
  from jeet.internal_streams
 order by name

-- Events of several partitions ($2, from $3, at most $4 events and $5 bytes each) of stream $1, and the time of reading.
select f.*, date_part('epoch', clock_timestamp()) * 1000 as now_ms
  from jeet_internal.fetch_events($1, $2, $3, $4, $5) f

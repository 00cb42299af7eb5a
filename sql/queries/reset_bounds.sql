-- How far streams go: the offset at which the longest of their partitions ends, and the time.
select coalesce(max(h.head), 0) as head, clock_timestamp() as now
  from jeet_internal.stream s
  join jeet_internal.head h on h.stream_id = s.id
 where s.name = any (%(names)s)

-- A stream's partitions and what is kept of each.
select s.id, h.partition, h.first_offset, h.head
  from jeet_internal.stream s
  join jeet_internal.head h on h.stream_id = s.id
 where s.name = $1
 order by h.partition

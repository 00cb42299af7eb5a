-- Streams that may have something to let go of.
select s.id, s.name
  from jeet_internal.stream s
 where not s.dropped and (s.retention is not null or s.max_bytes is not null
    or exists (select from jeet_internal.head h where h.stream_id = s.id and h.barred is not null))
 order by s.id

-- The slowest events of the last two hours, of all functions or of one.
select function, stage, stream, partition, "offset", round(cpu_ms::numeric, 1)::float8 as cpu_ms, at
  from jeet.slowest_events
 where span = interval '1 minute' and (%(function)s::text is null or function = %(function)s)
 order by cpu_ms desc limit 10;

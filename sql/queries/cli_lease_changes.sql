-- The latest changes of owners, of all functions or of one.
select function, stage, partition, from_worker, to_worker, reason, round(elapsed_ms::numeric)::float8 as elapsed_ms, at
  from jeet.lease_changes where %(function)s::text is null or function = %(function)s
 order by at desc, function, stage, partition limit 20;

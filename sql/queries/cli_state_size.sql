-- How much state there is and how it grows, of all functions or of one.
select function, collection, rows, bytes, error, round(growth_rows_per_hour)::bigint as rows_per_hour,
       round(growth_bytes_per_hour)::bigint as bytes_per_hour, ttl, at
  from jeet.state_size where %(function)s::text is null or function = %(function)s
 order by bytes desc, function, collection;

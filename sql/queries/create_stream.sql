-- Makes a stream, or finds it with equal settings; tells which.
select not exists (select from jeet_internal.stream where name = %(name)s) as created,
       jeet_internal.create_stream(%(name)s, %(partitions)s, %(key)s, make_interval(secs => %(retention_s)s::float8), %(max_lag)s, false, %(max_bytes)s) as id

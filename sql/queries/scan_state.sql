-- In key order, which is that of the bytes (collation C); the empty string is a key too, hence from_start.
select key, value::text, (extract(epoch from expires_at) * 1000)::float8 + %(hold_ms)s::float8
  from jeet_internal.state
 where task_id = %(task)s::int and collection_id = %(collection)s::smallint and key >= %(after)s::text
   and (%(from_start)s::boolean or key <> %(after)s::text)
 order by key limit %(limit)s::int

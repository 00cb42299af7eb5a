select key, value::text, (extract(epoch from expires_at) * 1000)::float8 + %(hold_ms)s::float8
  from jeet_internal.state
 where task_id = %(task)s::int and collection_id = %(collection)s::smallint and key = any (%(keys)s::text[])

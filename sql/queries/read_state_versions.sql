-- As read_state, with the version of the function that wrote each entry if that was before %(version)s.
select key, value::text, (extract(epoch from expires_at) * 1000)::float8 + %(hold_ms)s::float8,
       case when coalesce(version, 0) < %(version)s then coalesce(version, 0) end
  from jeet_internal.state
 where task_id = %(task)s::int and collection_id = %(collection)s::smallint and key = any (%(keys)s::text[])

-- Collections as a version declares them. A TTL counts for what is written, or refreshed, from now on; what is stored
-- keeps the time it was given.
with declared as (
    select c.key as name, (c.value ->> 'ttl_ms')::float8 * interval '1 millisecond' as ttl, c.value ->> 'refresh' as refresh
      from jsonb_each(%(state)s::jsonb) c
)
update jeet_internal.collection c
   set ttl = d.ttl, refresh = coalesce(d.refresh, 'write')
  from jeet_internal.collection k
  left join declared d on d.name = k.name
 where k.function_id = %(function)s and c.function_id = k.function_id and c.id = k.id
   and (c.ttl, c.refresh) is distinct from (d.ttl, coalesce(d.refresh, 'write'))

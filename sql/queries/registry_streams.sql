-- Streams by name, each with the key that its events were given: its own, or, without one, that of the events from which
-- all functions that write it make theirs, if they agree.
select s.id, s.name, s.partitions, s.key, s.internal, coalesce(s.key, w.key) as effective_key
  from jeet_internal.stream s
  left join lateral (
      select case when count(*) = count(k.key) and count(distinct k.key) = 1 then min(k.key) end as key
        from jeet_internal.function f
        join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
       cross join lateral (select case when v.spec ? 'output_key' then v.spec ->> 'output_key' else v.spec ->> 'key' end as key) k
        join jeet_internal.stage g on g.function_id = f.id and g.version = f.version
       where s.id = any (g.outputs)) w on true
 where s.name = any (%(names)s)

-- Whether functions other than %(function)s lead from one of the streams %(outputs)s to the stream %(source)s.
with recursive reached(id) as (
    select unnest(%(outputs)s::int[])
    union
    select o.id
      from reached r
      join jeet_internal.stage g on r.id = any (g.inputs)
      join jeet_internal.function f on f.id = g.function_id and f.version = g.version
     cross join unnest(g.outputs) o(id)
     where f.id is distinct from %(function)s and o.id is not null
)
select exists (select from reached where id = %(source)s)

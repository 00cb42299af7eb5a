-- Every stream that some version of a function was allowed to write.
select distinct s.name
  from jeet_internal.stage g
 cross join unnest(g.outputs) o(id)
  join jeet_internal.stream s on s.id = o.id
 where g.function_id = %(function)s

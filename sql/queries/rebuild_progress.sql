-- How a function that is built again fares; no row: it is not.
select r.phase, r.begun_at, l.events, l.others
  from jeet_internal.rebuild r
 cross join jeet_internal.rebuild_left(r.function_id) l
 where r.function_id = %(function)s

-- Open dead letters of some stages of a function.
select count(*) as open
  from jeet_internal.dead_letter d
  join jeet_internal.task t on t.id = d.task_id
 where t.function_id = %(function)s and t.stage = any (%(stages)s::int[]) and d.status = 'open'

-- Open dead letters of a function, but for those of events that came late: these change nothing when they are processed again.
select count(*) filter (where d.error not like 'late for %%' or d.stack <> '') as open
  from jeet_internal.dead_letter d
  join jeet_internal.task t on t.id = d.task_id
 where t.function_id = %(function)s and d.status = 'open'

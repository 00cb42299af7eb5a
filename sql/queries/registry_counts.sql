-- What goes with a function.
select (select count(*) from jeet_internal.state s join jeet_internal.task t on t.id = s.task_id where t.function_id = %(function)s) as state,
       (select count(*) from jeet_internal.dead_letter d join jeet_internal.task t on t.id = d.task_id
         where t.function_id = %(function)s and d.status = 'open') as dead_letters

-- Pause or let run again; running again also lets run what had halted.
with halted as (
    update jeet_internal.task set status = 'running', halt_reason = null
     where function_id = %(function)s and status = 'halted' and %(status)s = 'running'
), told as (
    delete from jeet_internal.assignment a
     using jeet_internal.task t
     where t.id = a.task_id and t.function_id = %(function)s and %(status)s = 'paused'
)
update jeet_internal.function set status = %(status)s where id = %(function)s

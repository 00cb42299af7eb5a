-- After its place was changed: what had halted runs again, what drained for another graph does not any more, what was paused
-- stays paused. Gives the status.
with halted as (
    update jeet_internal.task set status = 'running', halt_reason = null
     where function_id = %(function)s and status = 'halted'
)
update jeet_internal.function
   set draining = false, status = case when status = 'failed' then 'running' else status end
 where id = %(function)s
returning status

-- Let a function run another version. What had halted runs again; what was paused stays paused.
with halted as (
    update jeet_internal.task set status = 'running', halt_reason = null
     where function_id = %(function)s and status = 'halted'
)
update jeet_internal.function
   set version = %(version)s, on_error = %(on_error)s, hold_ttl = %(hold_ttl)s, deployed_at = clock_timestamp(),
       status = case when status = 'failed' then 'running' else status end
 where id = %(function)s

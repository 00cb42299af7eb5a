-- Whether a function has anything that a savepoint would keep.
select exists (select from jeet_internal.task t
                where t.function_id = %(function)s
                  and (exists (select from jeet_internal.state s where s.task_id = t.id)
                       or exists (select from jeet_internal.timer r where r.task_id = t.id)))

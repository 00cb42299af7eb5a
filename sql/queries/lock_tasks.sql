-- The session locks that could be had now; never waits. Locks are counted: only tasks without one are asked for.
select id from unnest(%(tasks)s::int[]) id where pg_try_advisory_lock(%(task_class)s, id)

-- Notifies after the unlock: whoever waits for the task can have it when it hears of it.
select pg_advisory_unlock(%(task_class)s, id), pg_notify('jeet_control', 'released ' || id) from unnest(%(tasks)s::int[]) id

-- What a worker holds, or was told to hold.
select t.id from jeet_internal.task t where t.worker_id = $1::int
union
select a.task_id from jeet_internal.assignment a where a.worker_id = $1::int

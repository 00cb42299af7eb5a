-- Make the assignment that of $1 (tasks) and $2 (their workers), change only what differs, tell the workers.
select removed, changed from jeet_internal.assign($1::int[], $2::int[])

-- Delete at most $3 entries of task $1 that expired more than $2 seconds ago.
select jeet_internal.sweep_state($1::int, $3::int, make_interval(secs => $2::float8))

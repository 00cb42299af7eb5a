-- Turn at most $2 minutes of figures that are older than $1 hours into hours.
select jeet_internal.roll_up_figures(make_interval(secs => $1::float8 * 3600), $2::int)

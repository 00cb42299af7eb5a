-- Estimate how much state there is, from at most $1 pages.
select jeet_internal.measure_state($1::int)

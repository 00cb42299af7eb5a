-- What the tasks of worker $1 did ($2), which keys of theirs are hot ($3), what it says of itself ($4).
select jeet_internal.record_figures($1, $2::jsonb, $3::jsonb, $4::jsonb)

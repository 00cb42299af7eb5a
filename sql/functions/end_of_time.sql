-- The event time at which nothing can come any more: the last that clients everywhere can read.
create or replace function jeet_internal.end_of_time() returns timestamptz language sql immutable as
$$ select timestamptz '9999-12-31 23:59:59.999+00' $$;

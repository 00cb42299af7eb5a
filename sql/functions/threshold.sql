-- One of jeet.thresholds, as the rules of jeet.diagnosis read it.
create or replace function jeet_internal.threshold(p_name text) returns float8 language sql stable as $$
    select value from jeet.thresholds where name = p_name
$$;

-- One that is a time.
create or replace function jeet_internal.threshold_span(p_name text) returns interval language sql stable as $$
    select make_interval(secs => value) from jeet.thresholds where name = p_name
$$;

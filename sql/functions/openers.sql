-- How many arrays and objects a JSON text may open: an upper bound of its depth, as brackets inside strings count too.
-- Inlined: hence no fixed search_path; every name is qualified instead.
create or replace function jeet_internal.openers(p_text text) returns int
language sql immutable parallel safe as $$
    select pg_catalog.octet_length(p_text) operator(pg_catalog.-)
           pg_catalog.octet_length(pg_catalog.replace(pg_catalog.replace(p_text, '[', ''), '{', ''))
$$;

-- Whether an event's text is certainly good, by tests that cost little; if not, event_fault has to look closely.
-- Inlined: hence no fixed search_path; every name is qualified instead.
create or replace function jeet_internal.is_plain(p_text text) returns boolean
language sql stable parallel safe as $$
    select case when pg_catalog.octet_length(p_text) <= 256
                  or pg_catalog.octet_length(p_text) <= 1048576 /*event_bytes*/ and jeet_internal.openers(p_text) <= 128 /*depth*/
                then pg_catalog.pg_input_is_valid(p_text, 'json')
                     and p_text operator(pg_catalog.!~) '[0-9]{16}|[eE][-+]?[0-9]{3}|\\u(?:0000|[dD][89a-fA-F])'
                else false end
$$;

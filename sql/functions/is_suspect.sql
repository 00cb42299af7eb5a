-- Whether event_fault has to look closely at one of many texts. A text with escapes that jsonb takes has no NUL and no lone
-- surrogate. p_numbers: some text of the batch has a number that may be too large.
-- Inlined: hence no fixed search_path; every name is qualified instead.
create or replace function jeet_internal.is_suspect(p_text text, p_numbers boolean) returns boolean
language sql stable parallel safe as $$
    select p_text is null
        or pg_catalog.octet_length(p_text) operator(pg_catalog.>) 256
           and (pg_catalog.octet_length(p_text) operator(pg_catalog.>) 1048576 /*event_bytes*/ or jeet_internal.openers(p_text) operator(pg_catalog.>) 128 /*depth*/)
        or not pg_catalog.pg_input_is_valid(p_text, case when pg_catalog.strpos(p_text, '\u') operator(pg_catalog.>) 0 then 'jsonb' else 'json' end)
        or p_numbers and p_text operator(pg_catalog.~) '[0-9]{16}|[eE][-+]?[0-9]{3}'
$$;

-- The key in a JSON string or number as text: the string itself, or the number if it is an integer of at most 2^53-1 in
-- plain decimal; null for anything else ("null" included). Without a backslash a JSON string is the text between its quotes.
-- Inlined where the argument is a column: hence no fixed search_path; every name is qualified instead.
create or replace function jeet_internal.key_of_json(p_json text) returns text
language sql immutable parallel safe as $$
    select case
        when pg_catalog.left(p_json, 1) = '"' then
            case when pg_catalog.strpos(p_json, '\') = 0 then pg_catalog.substr(p_json, 2, pg_catalog.length(p_json) - 2)
                 else p_json::pg_catalog.json operator(pg_catalog.#>>) '{}' end
        when pg_catalog.length(p_json) <= 17 and p_json operator(pg_catalog.~) '^-?(0|[1-9][0-9]*)$' then
            case when pg_catalog.abs(p_json::pg_catalog.int8) <= 9007199254740991 /*integer_range*/ then p_json::pg_catalog.int8::pg_catalog.text end
    end
$$;

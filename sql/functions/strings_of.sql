-- Whether lines are JSON strings without an escape, all of them, seen at a glance: then string_to_array takes what they hold
-- apart at '"\n"'. Not so a single empty string, as an empty text has no parts.
-- Inlined: hence no fixed search_path; every name is qualified instead.
create or replace function jeet_internal.are_plain_strings(p_lines text) returns boolean
language sql immutable parallel safe as $$
    select p_lines operator(pg_catalog.<>) '""' and p_lines operator(pg_catalog.~) '^"[^"\\\x01-\x1f]*"(?:\n"[^"\\\x01-\x1f]*")*$'
$$;

-- The strings that lines of JSON hold, in order; null for what is not a string but JSON. Raises if a line is not JSON.
create or replace function jeet_internal.strings_of(p_lines text) returns text[]
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    if jeet_internal.are_plain_strings(p_lines) then
        return string_to_array(substr(p_lines, 2, length(p_lines) - 2), E'"\n"');
    end if;
    return array(select line::json #>> '{}' from unnest(string_to_array(p_lines, E'\n')) with ordinality l (line, n) order by n);
end $$;
revoke all on function jeet_internal.strings_of(text) from public;

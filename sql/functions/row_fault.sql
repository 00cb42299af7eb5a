-- Why one of many events is refused, as 'code: what is wrong'; null if it is good. p_all false: its text only.
-- p_numbers: some row has a number that may be too large.
create or replace function jeet_internal.row_fault(
    p_text text, p_key text, p_id text, p_key_path text[], p_id_path text[], p_numbers boolean, p_all boolean) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_fault text;
begin
    -- Cheap tests first: most rows of a batch that holds a bad or an uncommon one are neither. A text with escapes that jsonb
    -- takes has no NUL and no lone surrogate.
    if p_text is null or octet_length(p_text) > 1048576 or jeet_internal.openers(p_text) > 128
       or not pg_input_is_valid(p_text, case when strpos(p_text, '\u') > 0 then 'jsonb' else 'json' end)
       or p_numbers and p_text ~ '[0-9]{16}|[eE][-+]?[0-9]{3}' then
        v_fault := jeet_internal.event_fault(p_text);
    end if;
    if v_fault is null and p_all then
        v_fault := coalesce(jeet_internal.key_fault(p_text::json, p_key_path, p_key), jeet_internal.id_path_fault(p_text::json, p_id_path),
                            jeet_internal.id_fault(p_id));
    end if;
    return v_fault;
end $$;
revoke all on function jeet_internal.row_fault(text, text, text, text[], text[], boolean, boolean) from public;

-- Why one of many events is refused for its key or id, as 'code: what is wrong'; null if both are good. Its text is good JSON.
create or replace function jeet_internal.row_fault(p_text text, p_key text, p_id text, p_key_path text[], p_id_path text[]) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(jeet_internal.key_fault(p_text::json, p_key_path, p_key), jeet_internal.id_path_fault(p_text::json, p_id_path),
                    jeet_internal.id_fault(p_id))
$$;
revoke all on function jeet_internal.row_fault(text, text, text, text[], text[]) from public;

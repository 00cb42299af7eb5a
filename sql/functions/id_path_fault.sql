-- Why the id that a path leads to is refused, as 'code: what is wrong'; null if it is good or no path is given.
create or replace function jeet_internal.id_path_fault(p_event json, p_path text[]) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_json text := jeet_internal.value_at(p_event, p_path)::text;
    v_id   text := jeet_internal.key_of_json(v_json);
    v_name text := to_json(array_to_string(p_path, '.'))::text;
begin
    if p_path is null then
        return null;
    elsif v_json is null then
        return format('id_missing: has no %s, its id', v_name);
    elsif v_id is null then
        return format('id_type: has %s as its id %s: an id is a string, or an integer of at most 2^53-1 in plain digits',
                      jeet_internal.shortened(v_json), v_name);
    end if;
    return jeet_internal.id_fault(v_id);
end $$;
revoke all on function jeet_internal.id_path_fault(json, text[]) from public;

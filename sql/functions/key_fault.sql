-- Why an event's key is refused, as 'code: what is wrong'; null if it is good. p_path leads to the key in the event (null:
-- the stream has none), p_given is the key that came beside it: used if the event lacks one, and else it must be equal.
create or replace function jeet_internal.key_fault(p_event json, p_path text[], p_given text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_json text := jeet_internal.value_at(p_event, p_path)::text;
    v_key  text := jeet_internal.key_of_json(v_json);
    v_name text := to_json(array_to_string(p_path, '.'))::text;
begin
    if p_path is not null and v_json is null and p_given is null then
        return format('key_missing: has no %s, the key of its stream', v_name);
    elsif v_json is not null and v_key is null then
        return format('key_type: has %s as its key %s: a key is a string, or an integer of at most 2^53-1 in plain digits',
                      jeet_internal.shortened(v_json), v_name);
    elsif v_key <> p_given then
        return format('key_mismatch: was given the key %s, but its %s is %s', jeet_internal.shortened(to_json(p_given)::text),
                      v_name, jeet_internal.shortened(v_json));
    elsif octet_length(coalesce(v_key, p_given)) > 1024 /*key_bytes*/ then
        return format('key_bytes: has a key of %s bytes, more than %s', octet_length(coalesce(v_key, p_given)), 1024 /*key_bytes*/);
    end if;
    return null;
end $$;
revoke all on function jeet_internal.key_fault(json, text[], text) from public;

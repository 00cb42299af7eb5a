-- What a path leads to in an event, step by step as JavaScript goes: of a name that is there twice the last counts, whatever
-- the earlier one holds. (#> with a path of several names would find {"a":{"b":1},"a":{}} to have a 1 at a.b.) Null: nothing.
-- Inlined: hence no fixed search_path; every name is qualified instead.
create or replace function jeet_internal.value_at(p_event json, p_path text[]) returns json
language sql immutable parallel safe as $$
    select case pg_catalog.cardinality(p_path)
        when 1 then p_event operator(pg_catalog.#>) p_path
        when 2 then (p_event operator(pg_catalog.#>) p_path[1:1]) operator(pg_catalog.#>) p_path[2:2]
        else jeet_internal.value_deep_at(p_event, p_path)
    end
$$;

-- The same for a path of any length.
create or replace function jeet_internal.value_deep_at(p_event json, p_path text[]) returns json
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    v_value json := p_event;
begin
    for i in 1 .. cardinality(p_path) loop
        v_value := v_value #> p_path[i:i];
    end loop;
    return v_value;
end $$;

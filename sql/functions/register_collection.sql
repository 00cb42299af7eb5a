-- The id of a function's state collection, made on first use; null when the function would have more than p_most.
-- Any number of tasks may ask at once: they queue on the function's row. A changed TTL is taken over for what is written
-- from now on.
create or replace function jeet_internal.register_collection(p_function int, p_name text, p_ttl_ms float8, p_refresh text, p_most int)
returns smallint language plpgsql as $$
declare
    v_id  smallint;
    v_ttl interval := p_ttl_ms * interval '1 millisecond';
begin
    select id into v_id from jeet_internal.collection
     where function_id = p_function and name = p_name and ttl is not distinct from v_ttl and refresh = p_refresh;
    if found then
        return v_id;
    end if;
    perform from jeet_internal.function where id = p_function for no key update;
    update jeet_internal.collection set ttl = v_ttl, refresh = p_refresh
     where function_id = p_function and name = p_name returning id into v_id;
    if found then
        return v_id;
    end if;
    insert into jeet_internal.collection (function_id, id, name, ttl, refresh)
    select p_function, coalesce(max(c.id) + 1, 0), p_name, v_ttl, p_refresh
      from jeet_internal.collection c where c.function_id = p_function
    having count(*) < p_most
    returning id into v_id;
    return v_id;
end $$;

-- `1 event`, `2 events`: for messages.
create or replace function jeet_internal.counted(p_number bigint, p_one text) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select format('%s %s%s', p_number, p_one, case when p_number <> 1 then 's' end)
$$;
revoke all on function jeet_internal.counted(bigint, text) from public;

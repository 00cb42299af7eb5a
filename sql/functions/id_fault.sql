-- Why an event's id is refused, as 'code: what is wrong'; null if it is good or there is none.
create or replace function jeet_internal.id_fault(p_id text) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when octet_length(p_id) not between 1 and 1024 /*id_bytes*/
                then format('id_bytes: has an id of %s bytes: use 1 to %s', octet_length(p_id), 1024 /*id_bytes*/) end
$$;
revoke all on function jeet_internal.id_fault(text) from public;

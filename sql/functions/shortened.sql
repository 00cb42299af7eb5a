-- A piece of somebody's text, short enough for a message.
create or replace function jeet_internal.shortened(p_text text) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when length(p_text) <= 24 then p_text else left(p_text, 20) || '…' end
$$;
revoke all on function jeet_internal.shortened(text) from public;

-- Why headers are refused, as 'code: what is wrong'; null if they are good or there are none. The guest sees them as JSON,
-- so they pass the gate of events.
create or replace function jeet_internal.headers_fault(p_headers jsonb) returns text
language sql stable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when jsonb_typeof(p_headers) <> 'object' then format('headers_type: has headers that are of type %s: use an object', jsonb_typeof(p_headers))
                when octet_length(p_headers::text) > 16384 /*headers_bytes*/
                then format('headers_bytes: has headers of %s bytes, more than %s', octet_length(p_headers::text), 16384 /*headers_bytes*/)
                when p_headers is not null then jeet_internal.event_fault(p_headers::text) end
$$;
revoke all on function jeet_internal.headers_fault(jsonb) from public;

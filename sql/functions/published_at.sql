-- When the event at an offset, or the next one that is still kept, was appended; null if there is none.
-- The statement carries its stream as a constant: a parameter would plan, open and lock the segments of all streams.
-- SECURITY DEFINER: views call it for readers, who may not see the log itself.
create or replace function jeet_internal.published_at(p_stream int, p_partition int, p_offset bigint)
returns timestamptz language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_at timestamptz;
begin
    execute format('select published_at from jeet_internal.event where stream_id = %s and partition = %s and "offset" >= %s'
                   ' order by "offset" limit 1', p_stream, p_partition, p_offset) into v_at;
    return v_at;
end $$;

-- Detaches a barred segment for a role that does not own the log, and so cannot do it concurrently. That needs the stream to
-- itself for a moment, and appends queue behind it: so it gives up (55P03) unless the moment is there at once.
create or replace function jeet_internal.detach_segment(p_stream int, p_segment bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '20ms' as $$
begin
    if not exists (select from jeet_internal.head h where h.stream_id = p_stream and h.barred = p_segment) then
        raise exception 'segment % of stream % is not barred', p_segment, p_stream using errcode = 'object_not_in_prerequisite_state';
    end if;
    execute format('alter table jeet_internal.event_%s detach partition jeet_internal.event_%1$s_%s', p_stream, p_segment);
end $$;
revoke all on function jeet_internal.detach_segment(int, bigint) from public;

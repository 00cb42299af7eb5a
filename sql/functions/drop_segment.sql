-- Drops a segment that was barred and detached, and lifts the bar: appends may make it anew from here on.
create or replace function jeet_internal.drop_segment(p_stream int, p_segment bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform 1 from jeet_internal.head h where h.stream_id = p_stream and h.barred = p_segment order by h.partition for update;
    if exists (select from pg_inherits i where i.inhrelid = to_regclass(format('jeet_internal.event_%s_%s', p_stream, p_segment))) then
        raise exception 'segment % of stream % is still part of the log', p_segment, p_stream using errcode = 'object_not_in_prerequisite_state';
    end if;
    execute format('drop table if exists jeet_internal.event_%s_%s', p_stream, p_segment);
    update jeet_internal.head h set barred = null where h.stream_id = p_stream and h.barred = p_segment;
end $$;
revoke all on function jeet_internal.drop_segment(int, bigint) from public;

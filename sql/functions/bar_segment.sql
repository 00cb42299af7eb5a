-- Closes a segment before it is dropped, if it may still go: readers see its events no more, and no append can enter it until
-- drop_segment. Returns how many events of it a deployed function has not processed (above 0 for the sake of max_bytes
-- only), or null if the segment has to stay after all.
-- Holding all heads, so that no append is under way that took offsets before it could see the bar.
create or replace function jeet_internal.bar_segment(p_stream int, p_segment bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_end  bigint;
    v_lost bigint;
begin
    perform 1 from jeet_internal.head h where h.stream_id = p_stream order by h.partition for update;
    if jeet_internal.why_drop_segment(p_stream, p_segment) is null then
        return null;
    end if;
    select (p_segment + 1) * s.segment_size into v_end from jeet_internal.stream s where s.id = p_stream;
    select coalesce(sum(v_end - greatest(c.next_offset, h.first_offset)), 0)
      into v_lost
      from jeet_internal.checkpoint c
      join jeet_internal.task t on t.id = c.task_id
      join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
     where c.stream_id = p_stream and h.head >= v_end and greatest(c.next_offset, h.first_offset) < v_end;
    update jeet_internal.head h
       set barred = p_segment, first_offset = case when h.head >= v_end then greatest(h.first_offset, v_end) else h.first_offset end
     where h.stream_id = p_stream;
    return v_lost;
end $$;
revoke all on function jeet_internal.bar_segment(int, bigint) from public;

-- take_offsets for a single partition, without the detours of many: gives out its next p_count offsets, returns the first.
create or replace function jeet_internal.take_offset(p_stream int, p_partition int, p_count bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_head record;
begin
    select h.head, h.waiting, h.barred is not null or (h.head + p_count - 1) / (s.segment_size / 4) <> (h.head - 1) / (s.segment_size / 4) as enters
      into v_head
      from jeet_internal.head h join jeet_internal.stream s on s.id = h.stream_id
     where h.stream_id = p_stream and h.partition = p_partition
       for update of h;
    if not found then
        raise exception 'stream % has no partition %', p_stream, p_partition using errcode = 'JT120';
    end if;
    update jeet_internal.head h set head = h.head + p_count, waiting = false where h.stream_id = p_stream and h.partition = p_partition;
    if v_head.enters then
        perform jeet_internal.enter_segments(array[p_stream], array[p_partition], array[v_head.head], array[p_count]);
    end if;
    if v_head.waiting then
        perform pg_notify('jeet_data', p_stream || ':' || p_partition);
    end if;
    return v_head.head;
end $$;
revoke all on function jeet_internal.take_offset(int, int, bigint) from public;

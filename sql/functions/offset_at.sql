-- The first offset of a partition that was published at or after a time; its head if there is none.
-- Offsets are dense and taken in the order of publishing, so halving the interval finds it in some twenty reads.
create or replace function jeet_internal.offset_at(p_stream int, p_partition int, p_time timestamptz) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_low  bigint;
    v_high bigint;
    v_mid  bigint;
    v_at   timestamptz;
begin
    select h.first_offset, h.head into v_low, v_high
      from jeet_internal.head h where h.stream_id = p_stream and h.partition = p_partition;
    while v_low < v_high loop
        v_mid := (v_low + v_high) / 2;
        -- The stream as a constant: a parameter would lock the segments of all streams.
        execute format('select published_at from jeet_internal.event where stream_id = %s and partition = %s and "offset" = %s',
                       p_stream, p_partition, v_mid) into v_at;
        if v_at < p_time then
            v_low := v_mid + 1;
        else
            v_high := v_mid;
        end if;
    end loop;
    return v_low;
end $$;

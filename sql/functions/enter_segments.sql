-- Sees to it that there is a segment for each offset that was just given out, and two more after the last. Needed only when
-- an offset is the first of its segment: where an event is before it, its segment is there, and stays while a head is in it.
-- Called at each quarter, so that segments are made soon also after somebody's were rolled back.
create or replace function jeet_internal.enter_segments(p_streams int[], p_partitions int[], p_first bigint[], p_counts bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_stream record;
begin
    for v_stream in
        select t.stream_id as id, min(t.first) as first, bool_or(t.barred) as barred,
               bool_or(to_regclass(format('jeet_internal.event_%s_%s', t.stream_id, t.n)) is null) as lacking,
               bool_or(to_regclass(format('jeet_internal.event_%s_%s', t.stream_id, t.n + 2)) is null) as short
          from (select h.stream_id, n, min(w.first) as first, bool_or(coalesce(h.barred = n, false)) as barred
                  from unnest(p_streams, p_partitions, p_first, p_counts) w (stream_id, partition, first, count)
                  join jeet_internal.head h on h.stream_id = w.stream_id and h.partition = w.partition
                  join jeet_internal.stream s on s.id = h.stream_id
                 cross join generate_series(w.first / s.segment_size, (w.first + w.count - 1) / s.segment_size) n
                 group by h.stream_id, n) t
         group by t.stream_id
         order by t.stream_id
    loop
        if v_stream.barred then
            raise exception 'a segment that this append needs is just being dropped; nothing was written; try again' using errcode = 'lock_not_available';
        elsif v_stream.lacking then
            perform jeet_internal.ensure_segments(v_stream.id, true, v_stream.first);
        elsif v_stream.short then
            begin
                perform jeet_internal.ensure_segments(v_stream.id, false);
            exception when object_in_use then
                null;  -- called from a query over this very stream, which cannot be altered now; a later append makes them
            end;
        end if;
    end loop;
end $$;
revoke all on function jeet_internal.enter_segments(int[], int[], bigint[], bigint[]) from public;

-- Gives out offsets: p_counts[i] of them in partition p_partitions[i] of stream p_streams[i]; pairs are distinct and in
-- ascending order. Returns the first offset of each, in that order. The one place where heads move.
--
-- Locks the heads in order, once, and holds them to the end of the transaction: offsets are dense and in commit order, so
-- who sees offset k has seen all before it, and two callers of this can wait for one another but not deadlock.
-- Wakes consumers that have run dry (their mark on the head is cleared), with one notification a transaction.
create or replace function jeet_internal.take_offsets(p_streams int[], p_partitions int[], p_counts bigint[]) returns bigint[]
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_first   bigint[];
    v_awake   text[];
    v_barred  boolean;
    v_lacking int[];   -- streams without a segment for some of these offsets
    v_short   int[];   -- streams with less than two segments after these offsets
    v_from    bigint;
    v_stream  int;
begin
    with locked as materialized (
        select h.stream_id, h.partition, h.head, h.waiting, h.barred, w.count, s.segment_size
          from unnest(p_streams, p_partitions, p_counts) w (stream_id, partition, count)
          join jeet_internal.head h on h.stream_id = w.stream_id and h.partition = w.partition
          join jeet_internal.stream s on s.id = h.stream_id
         order by h.stream_id, h.partition
           for update of h),
    moved as (
        update jeet_internal.head h set head = h.head + l.count, waiting = false
          from locked l where h.stream_id = l.stream_id and h.partition = l.partition),
    touched as (
        select stream_id, n,
               to_regclass(format('jeet_internal.event_%s_%s', stream_id, n)) is null as lacking,
               to_regclass(format('jeet_internal.event_%s_%s', stream_id, n + 2)) is null as short
          from (select distinct stream_id, n
                  from locked cross join generate_series(head / segment_size, (head + count - 1) / segment_size) n) t)
    select array_agg(l.head order by l.stream_id, l.partition),
           array_agg(l.stream_id || ':' || l.partition order by l.stream_id, l.partition) filter (where l.waiting),
           bool_or(l.barred between l.head / l.segment_size and (l.head + l.count - 1) / l.segment_size),
           min(l.head),
           (select array_agg(distinct stream_id) from touched where lacking),
           (select array_agg(distinct stream_id) from touched where short and not lacking)
      into v_first, v_awake, v_barred, v_from, v_lacking, v_short
      from locked l;

    if cardinality(v_first) is distinct from cardinality(p_streams) then
        raise exception 'no such stream or partition among %', p_streams using errcode = 'JT120';
    end if;
    if v_barred then
        raise exception 'a segment that this append needs is just being dropped; nothing was written; try again' using errcode = 'lock_not_available';
    end if;
    foreach v_stream in array coalesce(v_lacking, '{}') loop
        perform jeet_internal.ensure_segments(v_stream, true, v_from);
    end loop;
    foreach v_stream in array coalesce(v_short, '{}') loop
        begin
            perform jeet_internal.ensure_segments(v_stream, false);
        exception when object_in_use then
            null;  -- called from a query over this very stream, which must not be altered now; the next append makes them
        end;
    end loop;

    -- Ids only, and well below the 8,000 bytes that a notification may hold.
    if v_awake is not null then
        for i in 1 .. cardinality(v_awake) by 400 loop
            perform pg_notify('jeet_data', array_to_string(v_awake[i : i + 399], ','));
        end loop;
    end if;
    return v_first;
end $$;
revoke all on function jeet_internal.take_offsets(int[], int[], bigint[]) from public;

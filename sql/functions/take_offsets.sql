-- Gives out offsets: p_counts[i] of them in partition p_partitions[i] of stream p_streams[i], for each i in turn; returns the
-- first offset of each. With take_offset, its twin for a single partition, the only place where heads move.
--
-- Locks the heads in order, once, and holds them to the end of the transaction: offsets are dense and in commit order, so
-- who sees offset k has seen all before it, and two callers of this can wait for one another but not deadlock.
-- Wakes consumers that have run dry (their mark on the head is cleared), with one notification a transaction.
create or replace function jeet_internal.take_offsets(p_streams int[], p_partitions int[], p_counts bigint[]) returns bigint[]
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_first bigint[];
    v_awake text[];
    v_enter boolean;  -- some of these offsets are the first in a quarter of a segment, or a segment is barred
begin
    if cardinality(p_streams) = 1 then
        return array[jeet_internal.take_offset(p_streams[1], p_partitions[1], p_counts[1])];
    end if;
    with wanted as (
        select stream_id, partition, sum(count)::bigint as count
          from unnest(p_streams, p_partitions, p_counts) w (stream_id, partition, count)
         group by stream_id, partition),
    locked as materialized (
        select h.stream_id, h.partition, h.head, h.waiting, w.count,
               h.barred is not null or (h.head + w.count - 1) / (s.segment_size / 4) <> (h.head - 1) / (s.segment_size / 4) as enters
          from wanted w
          join jeet_internal.head h on h.stream_id = w.stream_id and h.partition = w.partition
          join jeet_internal.stream s on s.id = h.stream_id
         order by h.stream_id, h.partition
           for update of h),
    moved as (
        update jeet_internal.head h set head = h.head + l.count, waiting = false
          from locked l where h.stream_id = l.stream_id and h.partition = l.partition)
    select array_agg(e.first order by e.n),
           (select array_agg(l.stream_id || ':' || l.partition) from locked l where l.waiting),
           (select bool_or(l.enters) from locked l)
      into v_first, v_awake, v_enter
      from (select w.n, l.head + sum(w.count) over (partition by w.stream_id, w.partition order by w.n)::bigint - w.count as first
              from unnest(p_streams, p_partitions, p_counts) with ordinality w (stream_id, partition, count, n)
              join locked l on l.stream_id = w.stream_id and l.partition = w.partition) e;
    if cardinality(v_first) is distinct from cardinality(p_streams) then
        raise exception 'no such stream or partition among %', p_streams using errcode = 'JT120';
    end if;
    if v_enter then
        perform jeet_internal.enter_segments(p_streams, p_partitions, v_first, p_counts);
    end if;
    -- Ids only, and well below the 8,000 bytes that a notification may hold.
    if v_awake is not null then
        for i in 1 .. cardinality(v_awake) by 400 loop
            perform pg_notify('jeet_data', array_to_string(v_awake[i : i + 399], ','));
        end loop;
    end if;
    return v_first;
end $$;
revoke all on function jeet_internal.take_offsets(int[], int[], bigint[]) from public;

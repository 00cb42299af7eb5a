-- Writes events to one stream, given in order of partition; returns their offsets in that order.
create or replace function jeet_internal.insert_rows(p_stream int, p_partitions int[], p_keys text[], p_values json[]) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_places  int[];
    v_counts  bigint[];
    v_first   bigint[];
    v_shifts  bigint[];  -- indexed by partition (from 1): what to add to an event's number to have its offset
    v_before  bigint := 0;
    v_offsets bigint[];
    v_now     timestamptz;
begin
    select array_agg(place order by place), array_agg(events order by place)
      into v_places, v_counts
      from (select place, count(*) as events from unnest(p_partitions) place group by place) counted;
    v_first := jeet_internal.take_offsets(array_fill(p_stream, array[cardinality(v_places)]), v_places, v_counts);
    v_now := clock_timestamp();
    v_shifts := array_fill(null::bigint, array[v_places[cardinality(v_places)] + 1]);
    for i in 1 .. cardinality(v_places) loop
        v_shifts[v_places[i] + 1] := v_first[i] - v_before - 1;
        v_before := v_before + v_counts[i];
    end loop;
    select array_agg(v_shifts[place + 1] + n order by n) into v_offsets from unnest(p_partitions) with ordinality e (place, n);
    insert into jeet_internal.event (stream_id, partition, "offset", published_at, key, value)
    select p_stream, place, at, v_now, key, value
      from unnest(p_partitions, v_offsets, p_keys, p_values) e (place, at, key, value);
    return v_offsets;
end $$;
revoke all on function jeet_internal.insert_rows(int, int[], text[], json[]) from public;

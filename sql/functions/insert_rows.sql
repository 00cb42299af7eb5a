-- Writes events to one stream, given in order of partition; returns their offsets in that order.
create or replace function jeet_internal.insert_rows(p_stream int, p_partitions int[], p_keys text[], p_values json[]) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_places  int[];
    v_counts  bigint[];
    v_first   bigint[];
    v_offsets bigint[];
    v_now     timestamptz;
begin
    select array_agg(place order by place), array_agg(events order by place)
      into v_places, v_counts
      from (select place, count(*) as events from unnest(p_partitions) place group by place) counted;
    v_first := jeet_internal.take_offsets(array_fill(p_stream, array[cardinality(v_places)]), v_places, v_counts);
    v_now := clock_timestamp();
    v_offsets := array(select generate_series(r.first, r.first + r.events - 1)
                         from unnest(v_first, v_counts) with ordinality r (first, events, i) order by i);
    -- Sets that a select lists run in step and row by row; `from unnest(…, …)` would store each of them first.
    insert into jeet_internal.event (stream_id, partition, "offset", published_at, key, value)
    select p_stream, e.place, e.at, v_now, e.key, e.value
      from (select unnest(p_partitions) as place, unnest(v_offsets) as at, unnest(p_keys) as key, unnest(p_values) as value) e;
    return v_offsets;
end $$;
revoke all on function jeet_internal.insert_rows(int, int[], text[], json[]) from public;

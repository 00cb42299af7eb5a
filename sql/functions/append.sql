-- The commit path's append: p_values[g] holds newline-joined JSON values for stream p_streams[g], p_keys[g] a JSON string
-- or null for each ('' means all null). Partitions and offsets are worked out here, never taken from the caller.
-- Raises on unequal counts, nulls and text that is not JSON; then nothing was written.
--
-- All heads are locked at once and in order (take_offsets), so a transaction calls this once, for all it has to append.
create or replace function jeet_internal.append(p_streams int[], p_keys text[], p_values text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_partitions int[];      -- of each group's stream
    v_turns      bigint[];   -- where each group's events without a key start going round
    v_broken     boolean;
    v_groups     int[];      -- group, partition and number of events: one entry for each partition that a group goes to
    v_places     int[];
    v_counts     bigint[];
    v_to_streams int[];      -- the same, summed by stream and partition, with the first offset
    v_to_places  int[];
    v_to_counts  bigint[];
    v_to_first   bigint[];
    v_starts     bigint[];
    v_stream     int;
    v_keys       text[];
    v_texts      text[];
    v_now        timestamptz;
begin
    if cardinality(p_keys) is distinct from cardinality(p_streams) or cardinality(p_values) is distinct from cardinality(p_streams)
       or array_position(p_streams, null) > 0 or array_position(p_keys, null) > 0 or array_position(p_values, null) > 0 then
        raise exception 'append needs as many keys and values as streams, and no nulls' using errcode = 'array_subscript_error';
    end if;
    select array_agg(s.partitions order by g.n),
           array_agg(case when g.keys = '' or strpos(g.keys, 'null') > 0
                          then nextval(format('jeet_internal.turn_%s', s.id)::regclass) else 0 end order by g.n)
      into v_partitions, v_turns
      from unnest(p_streams, p_keys) with ordinality g (stream_id, keys, n)
      join jeet_internal.stream s on s.id = g.stream_id;
    if cardinality(v_partitions) is distinct from cardinality(p_streams) then
        raise exception 'no such stream among %', p_streams using errcode = 'JT120';
    end if;

    -- How many go where. `offset 0` keeps each step from being computed more than once.
    select bool_or(broken), array_agg(n order by n, place), array_agg(place order by n, place), array_agg(events order by n, place)
      into v_broken, v_groups, v_places, v_counts
      from (select n, place, count(*) as events, bool_or(broken) as broken
              from (select n, coalesce(jeet.partition_of(key, partitions), ((turn + o) % partitions)::int) as place,
                           value is null or json_key is null and has_keys or key is null and json_key <> 'null' as broken
                      from (select g.n, g.partitions, g.turn, g.keys <> '' as has_keys, e.o, e.value, e.key as json_key,
                                   jeet_internal.key_of_json(e.key) as key
                              from unnest(v_partitions, v_turns, p_keys, p_values) with ordinality g (partitions, turn, keys, vals, n)
                             cross join lateral unnest(string_to_array(g.keys, E'\n'), string_to_array(g.vals, E'\n'))
                                                with ordinality e (key, value, o)
                            offset 0) decoded
                    offset 0) placed
             group by n, place) counted;
    if v_groups is null then
        return;
    end if;
    if v_broken then
        raise exception 'append needs a value and a JSON string or null as key for each event' using errcode = 'array_subscript_error';
    end if;
    select array_agg(stream_id order by stream_id, place), array_agg(place order by stream_id, place), array_agg(events order by stream_id, place)
      into v_to_streams, v_to_places, v_to_counts
      from (select p_streams[n] as stream_id, place, sum(events)::bigint as events
              from unnest(v_groups, v_places, v_counts) e (n, place, events) group by 1, 2) summed;
    v_to_first := jeet_internal.take_offsets(v_to_streams, v_to_places, v_to_counts);
    v_now := clock_timestamp();

    -- The common case: each group goes to one partition, as outputs do that are keyed like their input. No sorting.
    if v_groups = array(select distinct unnest(v_groups) order by 1) then
        select array_agg(f.first + g.before - 1 order by g.n)
          into v_starts
          from (select n, p_streams[n] as stream_id, place,
                       sum(events) over (partition by p_streams[n], place order by n) - events as before
                  from unnest(v_groups, v_places, v_counts) e (n, place, events)) g
          join unnest(v_to_streams, v_to_places, v_to_first) f (stream_id, place, first)
            on f.stream_id = g.stream_id and f.place = g.place;
        insert into jeet_internal.event (stream_id, partition, "offset", published_at, key, value)
        select p_streams[g.n], g.place, g.start + e.o, v_now, jeet_internal.key_of_json(e.key), e.value::json
          from unnest(v_groups, v_places, v_starts) g (n, place, start)
         cross join lateral unnest(string_to_array(p_keys[g.n], E'\n'), string_to_array(p_values[g.n], E'\n'))
                            with ordinality e (key, value, o);
        return;
    end if;

    -- Otherwise stream by stream, sorted by partition. v_starts is indexed by partition.
    foreach v_stream in array array(select distinct unnest(v_to_streams) order by 1) loop
        select array_agg(place order by place, n, o), array_agg(key order by place, n, o), array_agg(value order by place, n, o)
          into v_places, v_keys, v_texts
          from (select n, o, key, value, coalesce(jeet.partition_of(key, partitions), ((turn + o) % partitions)::int) as place
                  from (select g.n, g.partitions, g.turn, e.o, e.value, jeet_internal.key_of_json(e.key) as key
                          from unnest(p_streams, v_partitions, v_turns, p_keys, p_values)
                               with ordinality g (stream_id, partitions, turn, keys, vals, n)
                         cross join lateral unnest(string_to_array(g.keys, E'\n'), string_to_array(g.vals, E'\n'))
                                            with ordinality e (key, value, o)
                         where g.stream_id = v_stream
                        offset 0) decoded
                offset 0) placed;
        select array_agg(f.first - 1 - coalesce(f.before, 0) order by p)
          into v_starts
          from generate_series(0, (select max(e) from unnest(v_places) e)) p
          left join (select place, first, sum(events) over (order by place) - events as before
                       from unnest(v_to_streams, v_to_places, v_to_counts, v_to_first) t (stream_id, place, events, first)
                      where stream_id = v_stream) f on f.place = p;
        insert into jeet_internal.event (stream_id, partition, "offset", published_at, key, value)
        select v_stream, place, v_starts[place + 1] + o, v_now, key, value::json
          from unnest(v_places, v_keys, v_texts) with ordinality e (place, key, value, o);
    end loop;
end $$;
revoke all on function jeet_internal.append(int[], text[], text[]) from public;

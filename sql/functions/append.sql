-- The commit path's append: p_values[g] holds newline-joined JSON values for stream p_streams[g], p_keys[g] a JSON string
-- or null for each ('' means all null), p_times[g] its event time in whole milliseconds since the epoch ('' means none has
-- one, as does leaving p_times out). Partitions and offsets are worked out here, never taken from the caller.
-- Raises on unequal counts, nulls and text that is not JSON; then nothing was written.
--
-- All heads are locked at once and in order (take_offsets), so a transaction calls this once, for all it has to append.
create or replace function jeet_internal.append(p_streams int[], p_keys text[], p_values text[], p_times text[] default null)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    c_epoch constant timestamptz := 'epoch';
    c_ms    constant interval := '1 millisecond';
    v_partitions int[];      -- of each group's stream
    v_plain      text[];     -- keys without their quotes, '"\n"' between two of them
    v_turns      bigint[];   -- where each group's events without a key start going round
    v_broken     boolean;
    v_groups     int[];      -- one entry for each partition that a group goes to: the group, its stream, the partition,
    v_streams    int[];
    v_places     int[];
    v_counts     bigint[];   -- how many events, and what to add to an event's number to have its offset
    v_shifts     bigint[];
    v_before     bigint := 0;
    v_group      bigint[];   -- of each event: its group, its partition and its time
    v_place      int[];
    v_times      text[];
    v_rows       bigint;
    v_now        timestamptz;
begin
    if cardinality(p_keys) is distinct from cardinality(p_streams) or cardinality(p_values) is distinct from cardinality(p_streams)
       or array_position(p_streams, null) > 0 or array_position(p_keys, null) > 0 or array_position(p_values, null) > 0
       or p_times is not null and (cardinality(p_times) is distinct from cardinality(p_streams) or array_position(p_times, null) > 0) then
        raise exception 'append needs as many keys and values (and times) as streams, and no nulls' using errcode = 'array_subscript_error';
    end if;
    for g in 1 .. cardinality(p_streams) loop
        v_partitions[g] := (select s.partitions from jeet_internal.stream s where s.id = p_streams[g]);
        if v_partitions[g] is null then
            raise exception 'there is no stream %', p_streams[g] using errcode = 'JT120';
        end if;
        if jeet_internal.are_plain_strings(p_keys[g]) then
            v_plain[g] := substr(p_keys[g], 2, length(p_keys[g]) - 2);
        end if;
    end loop;

    -- The common case: plain keys, and all of a group go to one partition, as outputs do that are keyed like their input. No
    -- key is decoded and nothing sorted: an event's number in its group tells its offset. Sets that a select lists run in
    -- step and row by row, which costs less than `unnest(…, …) with ordinality`, where each is stored first.
    if cardinality(v_plain) = cardinality(p_streams) and array_position(v_plain, null) is null then
        select array_agg(first.place order by n), array_agg(first.events order by n)
          into v_places, v_counts
          from unnest(v_plain, v_partitions) with ordinality g (keys, partitions, n)
         cross join lateral (select string_to_array(g.keys, E'"\n"') as keys offset 0) split
         cross join lateral (select jeet.partition_of(split.keys[1], g.partitions) as place, cardinality(split.keys)::bigint as events offset 0) first
         where not exists (select from (select unnest(split.keys) as key offset 0) e
                            where jeet.partition_of(e.key, g.partitions) <> first.place);
        if cardinality(v_places) = cardinality(p_streams) then
            v_shifts := jeet_internal.take_offsets(p_streams, v_places, v_counts);
            v_now := clock_timestamp();
            if p_times is null then
                insert into jeet_internal.event (stream_id, partition, "offset", published_at, key, value)
                select g.stream_id, g.place, e.at, v_now, e.key, e.value::json
                  from unnest(p_streams, v_places, v_shifts, v_counts, v_plain, p_values) g (stream_id, place, first, events, keys, vals)
                 cross join lateral (select string_to_array(g.keys, E'"\n"') as keys, string_to_array(g.vals, E'\n') as vals offset 0) split
                 cross join lateral (select unnest(split.keys) as key, unnest(split.vals) as value,
                                            generate_series(g.first, g.first + g.events - 1) as at
                                      where cardinality(split.vals) = g.events
                                     offset 0) e;
            else
                insert into jeet_internal.event (stream_id, partition, "offset", published_at, ts, key, value)
                select g.stream_id, g.place, e.at, v_now, c_epoch + e.time::float8 * c_ms, e.key, e.value::json
                  from unnest(p_streams, v_places, v_shifts, v_counts, v_plain, p_values, p_times) g (stream_id, place, first, events, keys, vals, times)
                 cross join lateral (select string_to_array(g.keys, E'"\n"') as keys, string_to_array(g.vals, E'\n') as vals,
                                           string_to_array(g.times, E'\n') as times offset 0) split
                 cross join lateral (select unnest(split.keys) as key, unnest(split.vals) as value, unnest(split.times) as time,
                                            generate_series(g.first, g.first + g.events - 1) as at
                                      where cardinality(split.vals) = g.events and cardinality(split.times) in (0, g.events)
                                     offset 0) e;
            end if;
            get diagnostics v_rows = row_count;
            if v_rows <> (select sum(events) from unnest(v_counts) events) then
                raise exception 'append needs a value (and a time, if any) for each key' using errcode = 'array_subscript_error';
            end if;
            return;
        end if;

        -- Plain keys that go to several partitions, as those of events between stages do: each key's partition is worked out
        -- once, and the rows are put in order once.
        for g in 1 .. cardinality(p_streams) loop
            v_rows := cardinality(string_to_array(v_plain[g], E'"\n"'));
            if cardinality(string_to_array(p_values[g], E'\n')) <> v_rows
               or p_times[g] <> '' and cardinality(string_to_array(p_times[g], E'\n')) <> v_rows then
                raise exception 'append needs a value (and a time, if any) for each key' using errcode = 'array_subscript_error';
            end if;
            if p_times is not null then
                v_times := v_times || case when p_times[g] = '' then array_fill(null::text, array[v_rows::int])
                                           else string_to_array(p_times[g], E'\n') end;
            end if;
        end loop;
        select array_agg(g.n), array_agg(jeet.partition_of(k.key, g.partitions))
          into v_group, v_place
          from unnest(v_plain, v_partitions) with ordinality g (keys, partitions, n)
         cross join lateral (select unnest(string_to_array(g.keys, E'"\n"')) as key offset 0) k;
        select array_agg(p_streams[n] order by n, place), array_agg(place order by n, place), array_agg(events order by n, place)
          into v_streams, v_places, v_counts
          from (select n, place, count(*) as events
                  from (select unnest(v_group) as n, unnest(v_place) as place offset 0) e
                 group by n, place) counted;
        v_shifts := jeet_internal.take_offsets(v_streams, v_places, v_counts);
        v_now := clock_timestamp();
        for i in 1 .. cardinality(v_shifts) loop
            v_shifts[i] := v_shifts[i] - v_before - 1;
            v_before := v_before + v_counts[i];
        end loop;
        insert into jeet_internal.event (stream_id, partition, "offset", published_at, ts, key, value)
        select p_streams[n], place, v_shifts[dense_rank() over (order by n, place)] + row_number() over (order by n, place, o), v_now,
               c_epoch + time::float8 * c_ms, key, value::json
          from (select unnest(v_group) as n, unnest(v_place) as place, generate_series(1, cardinality(v_place)) as o,
                       unnest(string_to_array(array_to_string(v_plain, E'"\n"'), E'"\n"')) as key,
                       unnest(string_to_array(array_to_string(p_values, E'\n'), E'\n')) as value,
                       unnest(v_times) as time
                offset 0) e;
        return;
    end if;

    for g in 1 .. cardinality(p_streams) loop
        v_turns[g] := case when p_keys[g] = '' or strpos(p_keys[g], 'null') > 0
                           then nextval(format('jeet_internal.turn_%s', p_streams[g])::regclass) else 0 end;
    end loop;
    -- How many go where. `offset 0` keeps each step from being computed more than once.
    select bool_or(broken), array_agg(n order by n, place), array_agg(p_streams[n] order by n, place),
           array_agg(place order by n, place), array_agg(events order by n, place)
      into v_broken, v_groups, v_streams, v_places, v_counts
      from (select n, place, count(*) as events, bool_or(broken) as broken
              from (select n, coalesce(jeet.partition_of(key, partitions), ((turn + o) % partitions)::int) as place,
                           value is null or json_key is null and has_keys or key is null and json_key <> 'null'
                           or time is null and has_times as broken
                      from (select g.n, g.partitions, g.turn, g.keys <> '' as has_keys, coalesce(g.times, '') <> '' as has_times,
                                   e.o, e.value, e.time, e.key as json_key, jeet_internal.key_of_json(e.key) as key
                              from unnest(v_partitions, v_turns, p_keys, p_values, p_times)
                                   with ordinality g (partitions, turn, keys, vals, times, n)
                             cross join lateral unnest(string_to_array(g.keys, E'\n'), string_to_array(g.vals, E'\n'), string_to_array(g.times, E'\n'))
                                                with ordinality e (key, value, time, o)
                            offset 0) decoded
                    offset 0) placed
             group by n, place) counted;
    if v_groups is null then
        return;
    end if;
    if v_broken then
        raise exception 'append needs a value and a JSON string or null as key (and a time, if any) for each event' using errcode = 'array_subscript_error';
    end if;
    v_shifts := jeet_internal.take_offsets(v_streams, v_places, v_counts);
    v_now := clock_timestamp();

    for i in 1 .. cardinality(v_shifts) loop
        v_shifts[i] := v_shifts[i] - v_before - 1;
        v_before := v_before + v_counts[i];
    end loop;
    -- Sorted by group and partition, as the entries are: dense_rank finds the entry, row_number the event.
    insert into jeet_internal.event (stream_id, partition, "offset", published_at, ts, key, value)
    select p_streams[n], place, v_shifts[dense_rank() over (order by n, place)] + row_number() over (order by n, place, o), v_now,
           c_epoch + time::float8 * c_ms, key, value::json
      from (select n, o, key, value, time, coalesce(jeet.partition_of(key, partitions), ((turn + o) % partitions)::int) as place
              from (select g.n, g.partitions, g.turn, e.o, e.value, e.time, jeet_internal.key_of_json(e.key) as key
                      from unnest(v_partitions, v_turns, p_keys, p_values, p_times)
                           with ordinality g (partitions, turn, keys, vals, times, n)
                     cross join lateral unnest(string_to_array(g.keys, E'\n'), string_to_array(g.vals, E'\n'), string_to_array(g.times, E'\n'))
                                        with ordinality e (key, value, time, o)
                    offset 0) decoded
            offset 0) placed;
end $$;
revoke all on function jeet_internal.append(int[], text[], text[], text[]) from public;

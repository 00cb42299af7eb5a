-- Reads [start, …) of partitions of one stream as columns: newline-joined JSON, as the sandbox takes it. One row for each
-- wanted partition n: never past the head, more than p_max_events[n], or, beyond the first event, p_max_bytes[n] of values.
-- A start below first_offset reads nothing: the caller sees it by that column. STABLE: all is read in the caller's
-- snapshot, so head and events agree.
--
-- The statements over the log are planned at each call. Where all that is read lies in one segment, as it mostly does, they
-- read that directly; else they carry the stream and the bounds of all that is read as constants, so that only the segments
-- concerned are planned, opened and locked.
create or replace function jeet_internal.fetch_events(
    p_stream int, p_partitions int[], p_starts bigint[], p_max_events int[], p_max_bytes bigint[],
    out n int, out first_offset bigint, out head bigint, out count int,
    out vals bytea, out keys bytea, out timestamps bytea, out headers bytea) returns setof record
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    c_largest constant int := 1048576 /*event_bytes*/;  -- bytes that an event may have
    c_inline  constant int := 2048;     -- bytes that its value has at most where none is stored out of line
    -- Keys are joined as if none needed an escape in JSON; whether that was so is seen at a glance afterwards.
    c_columns constant text := $sql$
        count(*)::int as count, convert_to(string_agg(value::text, E'\n'), 'UTF8') as vals,
        count(key) as keyed, '"' || string_agg(key, E'"\n"') || '"' as keys,
        convert_to(string_agg((date_part('epoch', case when jeet_internal.is_time(ts) then ts else published_at end) * 1000)::bigint::text, E'\n'), 'UTF8') as timestamps,
        case when count(headers) > 0 then convert_to(string_agg(coalesce(headers::text, 'null'), E'\n'), 'UTF8') end as headers$sql$;
    v_ends   bigint[];
    v_firsts bigint[];
    v_heads  bigint[];
    v_from   bigint;
    v_to     bigint;
    v_room   bigint;  -- bytes that each event may have on average, in the partition where they are fewest
    v_size   bigint;
    v_table  text;
    v_spills boolean;  -- some events of the segment are stored out of line
    v_keyed  bigint;
    v_keys   text;
begin
    select array_agg(e.until order by w.n), array_agg(h.first_offset order by w.n), array_agg(h.head order by w.n),
           min(w.start) filter (where w.start < e.until), max(e.until) filter (where w.start < e.until),
           min(w.most_bytes / (e.until - w.start)) filter (where e.until - w.start > 1), min(s.segment_size)
      into v_ends, v_firsts, v_heads, v_from, v_to, v_room, v_size
      from unnest(p_partitions, p_starts, p_max_events, p_max_bytes) with ordinality w (partition, start, most, most_bytes, n)
      join jeet_internal.head h on h.stream_id = p_stream and h.partition = w.partition
      join jeet_internal.stream s on s.id = p_stream
     cross join lateral (select case when w.start < h.first_offset then w.start
                                     else greatest(w.start, least(h.head, w.start + w.most)) end) e (until);
    if cardinality(v_heads) is distinct from cardinality(p_partitions) then
        raise exception 'stream % lacks some of the partitions %', p_stream, p_partitions using errcode = 'JT120';
    end if;
    if v_from is null then
        return query select w.n::int, w.f, w.h, 0, ''::bytea, ''::bytea, ''::bytea, ''::bytea
                       from unnest(v_firsts, v_heads) with ordinality w (f, h, n);
        return;
    end if;
    if v_from / v_size = (v_to - 1) / v_size then
        select format('jeet_internal.%I', c.relname), pg_relation_size(c.reltoastrelid) > 0
          into v_table, v_spills
          from pg_class c where c.oid = to_regclass(format('jeet_internal.event_%s_%s', p_stream, v_from / v_size));
    end if;
    v_table := coalesce(v_table, 'jeet_internal.event');

    -- Where to stop for the sake of bytes. pg_column_size does not read a value that is stored out of line, so this touches
    -- little more than what is read below, however large the events are. It counts up to 4 bytes a value too much.
    if v_room < (case v_spills when false then c_inline else c_largest end) then
        execute format($sql$
            select array_agg(coalesce(cut.until, w.until) order by w.n)
              from unnest($1, $2, $3, $4) with ordinality w (partition, start, until, most, n)
             cross join lateral (select sum(pg_column_size(value)) as bytes from %4$s
                                  where stream_id = %1$s and partition = w.partition and "offset" >= w.start and "offset" < w.until
                                    and "offset" >= %2$s and "offset" < %3$s) whole
             cross join lateral (select min("offset") as until
                                   from (select "offset", sum(pg_column_size(value)) over (order by "offset") as bytes from %4$s
                                          where stream_id = %1$s and partition = w.partition and "offset" >= w.start and "offset" < w.until
                                            and "offset" >= %2$s and "offset" < %3$s and whole.bytes > w.most) running
                                  where running.bytes > w.most and "offset" > w.start) cut$sql$,
            p_stream, v_from, v_to, v_table) into v_ends using p_partitions, p_starts, v_ends, p_max_bytes;
    end if;

    -- One partition: a simpler statement takes half as long to plan.
    for n, count, vals, v_keyed, v_keys, timestamps, headers in execute case when cardinality(p_partitions) = 1 then format(
        'select 1, ' || c_columns || ' from (select value, key, ts, published_at, headers from %s
                                              where stream_id = %s and partition = %s and "offset" >= %s and "offset" < %s
                                              order by "offset") ordered',
        v_table, p_stream, p_partitions[1], p_starts[1], v_ends[1])
    else format(
        'select w.n, e.*
           from unnest($1, $2, $3) with ordinality w (partition, start, until, n)
          cross join lateral (
              select ' || c_columns || ' from (select value, key, ts, published_at, headers from %4$s
                                                where stream_id = %1$s and partition = w.partition and "offset" >= w.start and "offset" < w.until
                                                  and "offset" >= %2$s and "offset" < %3$s
                                                order by "offset") ordered) e
          order by w.n', p_stream, v_from, v_to, v_table) end using p_partitions, p_starts, v_ends
    loop
        perform jeet_internal.expect_dense(p_stream, p_partitions[n], p_starts[n], v_ends[n], count);
        first_offset := v_firsts[n];
        head := v_heads[n];
        vals := coalesce(vals, '');
        timestamps := coalesce(timestamps, '');
        headers := coalesce(headers, '');
        if v_keyed = 0 then
            keys := '';
        elsif v_keyed = count and jeet_internal.are_plain_strings(v_keys)
              and octet_length(v_keys) - octet_length(replace(v_keys, E'\n', '')) = count - 1 then
            keys := convert_to(v_keys, 'UTF8');
        else
            execute format('select convert_to(string_agg(coalesce(to_json(key)::text, ''null''), E''\n'' order by "offset"), ''UTF8'')
                              from %s where stream_id = %s and partition = %s and "offset" >= %s and "offset" < %s',
                           v_table, p_stream, p_partitions[n], p_starts[n], v_ends[n]) into keys;
        end if;
        return next;
    end loop;
exception when undefined_table then
    raise exception 'a segment of stream % was dropped while it was to be read', p_stream using errcode = 'object_not_in_prerequisite_state';
end $$;
revoke all on function jeet_internal.fetch_events(int, int[], bigint[], int[], bigint[]) from public;

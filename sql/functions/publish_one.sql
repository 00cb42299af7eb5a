-- Publishes one event: what jeet.publish does, whatever the type of the event was. Refusals raise (class JT1).
-- A repeated id returns where its event went the first time, and nothing is written.
create or replace function jeet_internal.publish_one(
    p_stream text, p_event text, p_key text, p_headers jsonb, p_ts timestamptz, p_id text,
    out partition int, out "offset" bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_stream jeet_internal.stream;
    v_path   text[];
    v_json   text;
    v_key    text := p_key;
    v_fault  text;
    v_place  int;
    v_offset bigint;
begin
    select * into v_stream from jeet_internal.stream s where s.name = p_stream and not s.internal;
    if not found or v_stream.over_lag then
        v_stream := jeet_internal.stream_for_publish(p_stream);  -- says why not
    end if;
    -- Faults are looked for only where a cheap test cannot exclude them.
    if jeet_internal.is_plain(p_event) is not true then
        v_fault := jeet_internal.event_fault(p_event);
    end if;
    if v_fault is null then
        if v_stream.key is not null then
            v_path := string_to_array(v_stream.key, '.');
            v_json := jeet_internal.value_at(p_event::json, v_path)::text;
            v_key := coalesce(jeet_internal.key_of_json(v_json), p_key);
        end if;
        if v_json is not null and (v_key <> p_key or jeet_internal.key_of_json(v_json) is null)
           or v_path is not null and v_key is null or octet_length(v_key) > 1024 /*key_bytes*/ then
            v_fault := jeet_internal.key_fault(p_event::json, v_path, p_key);
        elsif p_id is not null or p_headers is not null or p_ts is not null then
            v_fault := coalesce(jeet_internal.id_fault(p_id), jeet_internal.headers_fault(p_headers), jeet_internal.ts_fault(p_ts));
        end if;
    end if;
    if v_fault is not null then
        raise exception 'the event was refused: it %', substring(v_fault from ': (.*)')
            using errcode = jeet_internal.refusal_sqlstate(split_part(v_fault, ':', 1)), detail = split_part(v_fault, ':', 1);
    end if;
    v_place := coalesce(jeet.partition_of(coalesce(v_key, p_id), v_stream.partitions),
                        (nextval(format('jeet_internal.turn_%s', v_stream.id)::regclass) % v_stream.partitions)::int);

    if p_id is null then
        v_offset := jeet_internal.take_offset(v_stream.id, v_place, 1);
    else
        -- Under the lock of the head, so that of two publishers of an id to the same partition the second sees the first.
        select h.head into v_offset
          from jeet_internal.head h where h.stream_id = v_stream.id and h.partition = v_place for update;
        loop
            select i.partition, i."offset" into partition, "offset"
              from jeet_internal.publish_id i where i.stream_id = v_stream.id and i.id = p_id and i.expires_at > clock_timestamp();
            if found then
                return;
            end if;
            insert into jeet_internal.publish_id as i (stream_id, id, partition, "offset", expires_at)
            values (v_stream.id, p_id, v_place, v_offset, clock_timestamp() + interval '7 days')
                on conflict (stream_id, id) do update
               set partition = excluded.partition, "offset" = excluded."offset", expires_at = excluded.expires_at
             where i.expires_at <= clock_timestamp();
            exit when found;
            -- The id went to another partition (with another key) at this moment: look again.
        end loop;
        perform jeet_internal.take_offset(v_stream.id, v_place, 1);
    end if;

    -- Line breaks may only be between tokens now, where a space is as good: events are joined by line breaks later.
    insert into jeet_internal.event (stream_id, partition, "offset", ts, key, headers, value)
    values (v_stream.id, v_place, v_offset, p_ts, v_key, p_headers, translate(p_event, E'\n\r', '  ')::json);
    partition := v_place;
    "offset" := v_offset;
end $$;
revoke all on function jeet_internal.publish_one(text, text, text, jsonb, timestamptz, text) from public;

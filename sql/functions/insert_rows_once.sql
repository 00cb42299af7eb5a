-- Writes events to one stream, given in order of partition, but those with an id only if the id was not published within
-- its window (7 days) and not before in this very call. written, partitions, offsets: where each is now; repeated: how
-- many of them were there before.
create or replace function jeet_internal.insert_rows_once(
    p_stream int, p_numbers int[], p_partitions int[], p_keys text[], p_values json[], p_ids text[],
    out written int[], out partitions int[], out offsets bigint[], out repeated int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_now     timestamptz;
    v_keys    text[];
    v_values  json[];
    v_ids     text[];
    v_again   int[];
    v_known   text[];
    v_places  int[];     -- where those of v_again are that an earlier call wrote: as seen in the same look, as an id may expire
    v_at      bigint[];
    v_rows    bigint;
begin
    loop
        begin
            -- Under the locks of the heads, so that of two publishers of an id to the same partition the second sees the first.
            perform 1 from jeet_internal.head h
              where h.stream_id = p_stream and h.partition = any (p_partitions) order by h.partition for update;
            v_now := clock_timestamp();
            select array_agg(n order by o) filter (where fresh), array_agg(place order by o) filter (where fresh),
                   array_agg(key order by o) filter (where fresh), array_agg(value order by o) filter (where fresh),
                   array_agg(id order by o) filter (where fresh),
                   array_agg(n order by o) filter (where not fresh), array_agg(id order by o) filter (where not fresh),
                   array_agg(known_place order by o) filter (where not fresh), array_agg(known_at order by o) filter (where not fresh)
              into written, partitions, v_keys, v_values, v_ids, v_again, v_known, v_places, v_at
              from (select e.*, i.partition as known_place, i."offset" as known_at,
                           e.id is null or i.id is null and row_number() over (partition by e.id order by e.n) = 1 as fresh
                      from unnest(p_numbers, p_partitions, p_keys, p_values, p_ids) with ordinality e (n, place, key, value, id, o)
                      left join jeet_internal.publish_id i on i.stream_id = p_stream and i.id = e.id and i.expires_at > v_now) known;
            if written is not null then
                offsets := jeet_internal.insert_rows(p_stream, partitions, v_keys, v_values);
                -- In the order of ids, so that two who publish the same ids wait for one another in the same order.
                insert into jeet_internal.publish_id as i (stream_id, id, partition, "offset", expires_at)
                select p_stream, id, place, at, v_now + interval '7 days'
                  from unnest(v_ids, partitions, offsets) e (id, place, at) where id is not null order by id
                    on conflict (stream_id, id) do update
                   set partition = excluded.partition, "offset" = excluded."offset", expires_at = excluded.expires_at
                 where i.expires_at <= v_now;
                get diagnostics v_rows = row_count;
                if v_rows <> cardinality(array_remove(v_ids, null)) then
                    raise exception 'an id was published to another partition just now' using errcode = 'JT199';
                end if;
            end if;
            exit;
        exception when sqlstate 'JT199' then
            null;  -- all of it is undone: look again
        end;
    end loop;
    repeated := coalesce(cardinality(v_again), 0);
    if repeated > 0 then
        select coalesce(written, '{}') || array_agg(e.n order by e.n), coalesce(partitions, '{}') || array_agg(coalesce(e.place, w.place) order by e.n),
               coalesce(offsets, '{}') || array_agg(coalesce(e.at, w.at) order by e.n)
          into written, partitions, offsets
          from unnest(v_again, v_known, v_places, v_at) e (n, id, place, at)
          left join unnest(v_ids, partitions, offsets) w (id, place, at) on w.id = e.id;
    end if;
end $$;
revoke all on function jeet_internal.insert_rows_once(int, int[], int[], text[], json[], text[]) from public;

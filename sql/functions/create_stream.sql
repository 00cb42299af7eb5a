-- Creates a stream with its partitions and first segments; returns its id. A stream of that name with the same settings
-- is returned as it is; with others it is an error (JT131). Names of streams that join stages (p_internal) are not checked.
create or replace function jeet_internal.create_stream(
    p_name text, p_partitions int, p_key text default null, p_retention interval default null,
    p_max_lag bigint default null, p_internal boolean default false, p_max_bytes bigint default null) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_id    int;
    v_found jeet_internal.stream;
begin
    -- One character and up to 127 more: 128 /*stream_name_chars*/.
    if not p_internal and p_name !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$' or p_name is null then
        raise exception 'the stream name % is not allowed: use 1 to 128 letters, digits, "_", "-" and ".", not starting with "-" or "." (stream_name_chars)',
            coalesce(to_json(p_name)::text, 'null') using errcode = 'JT130';
    end if;
    if p_partitions is null or p_partitions not between 1 and 4096 /*partitions*/ then
        raise exception 'stream "%" cannot have % partitions: use 1 to %', p_name, coalesce(p_partitions::text, 'no'), 4096 /*partitions*/ using errcode = 'JT130';
    end if;
    -- A path is names joined by dots. A name that is a number with a sign or leading zeros would index arrays in SQL but not in JavaScript.
    if p_key is not null and (octet_length(p_key) > 256 /*key_path_bytes*/ or p_key !~ '^[^.[:cntrl:][:space:]]+(\.[^.[:cntrl:][:space:]]+)*$'
                              or p_key ~ '(^|\.)([+-][0-9]+|0[0-9]+)(\.|$)') then
        raise exception 'the key % of stream "%" is not a path: use names joined by dots, such as userId or user.id, at most % bytes (key_path_bytes)',
            to_json(p_key), p_name, 256 /*key_path_bytes*/ using errcode = 'JT130';
    end if;
    if p_retention <= interval '0' then
        raise exception 'stream "%" cannot keep events for %: use a retention above 0', p_name, p_retention using errcode = 'JT130';
    end if;
    if p_max_lag <= 0 then
        raise exception 'stream "%" cannot have a max_lag of %: use a number above 0', p_name, p_max_lag using errcode = 'JT130';
    end if;
    if p_max_bytes <= 0 then
        raise exception 'stream "%" cannot have a max_bytes of %: use a number above 0', p_name, p_max_bytes using errcode = 'JT130';
    end if;

    -- About four million events a segment: few enough tables, small enough to drop. With max_bytes, about a quarter of it.
    insert into jeet_internal.stream (name, partitions, key, retention, max_lag, internal, max_bytes, segment_size)
    values (p_name, p_partitions, p_key, p_retention, p_max_lag, p_internal, p_max_bytes,
            greatest(1000, least(1000000, 4000000 / p_partitions, p_max_bytes / 800 / p_partitions)))
    on conflict (name) do nothing returning id into v_id;
    if v_id is null then
        -- Locked, as a plain read in an older snapshot might not see what the insert met.
        select * into strict v_found from jeet_internal.stream where name = p_name for share;
        if (v_found.partitions, v_found.internal, v_found.key, v_found.retention, v_found.max_lag, v_found.max_bytes)
           is distinct from (p_partitions, p_internal, p_key, p_retention, p_max_lag, p_max_bytes) then
            raise exception 'stream "%" exists with other settings: partitions %, key %, retention %, max_lag %, max_bytes %; use these or another name',
                p_name, v_found.partitions, coalesce(v_found.key, 'none'), coalesce(v_found.retention::text, 'for ever'),
                coalesce(v_found.max_lag::text, 'none'), coalesce(v_found.max_bytes::text, 'none') using errcode = 'JT131';
        end if;
        return v_found.id;
    end if;

    insert into jeet_internal.head (stream_id, partition) select v_id, p from generate_series(0, p_partitions - 1) p;
    execute format('create sequence jeet_internal.turn_%s as int cycle minvalue 0 maxvalue 2147483646 cache 1', v_id);
    execute format('create table jeet_internal.event_%s (like jeet_internal.event including all) partition by range ("offset")', v_id);
    execute format('alter table jeet_internal.event attach partition jeet_internal.event_%s for values in (%1$s)', v_id);
    perform jeet_internal.ensure_segments(v_id);
    return v_id;
end $$;
revoke all on function jeet_internal.create_stream(text, int, text, interval, bigint, boolean, bigint) from public;

-- Publishes the good ones of many events: what jeet.publish_many and publish_lines do. p_texts[i] is an event, p_keys[i] and
-- p_ids[i] (where given) its key and id; or p_key_path and p_id_path lead to them in the event; p_all is all texts joined.
-- written: indexes of events that are in the log, with partition and offset; repeated of them were there before, by their
-- id. refused: indexes of the others, each with its reason, 'code: what is wrong'.
--
-- Optimistic: one pass over all events that only finds out whether any is bad. If one is, each is judged by itself, and the
-- bad ones are left out of a second pass. The rare marks of what JSON allows and we do not (escapes of NUL and surrogates,
-- many digits, large exponents) are looked for in p_all, as a test for each text costs ten times as much.
create or replace function jeet_internal.publish_rows(
    p_stream text, p_texts text[], p_all text, p_keys text[], p_ids text[], p_key_path text[], p_id_path text[],
    out written int[], out partitions int[], out offsets bigint[], out repeated int, out refused int[], out reasons text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_stream  jeet_internal.stream := jeet_internal.stream_for_publish(p_stream);
    v_own     text[] := string_to_array(v_stream.key, '.');
    v_path    text[] := coalesce(v_own, p_key_path);
    c_escapes constant text := '\\u(?:0000|[dD][89a-fA-F])';
    -- Where a number may begin, not anywhere: digits and exponents are common within strings, in hashes for instance.
    c_numbers constant text := '(?:^|[:,\[[:space:]])-?(?:[0-9]{16}|[0-9]+\.[0-9]{24}|[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]{3})';
    v_bad     boolean := p_all ~ (c_escapes || '|' || c_numbers);
    v_numbers boolean := v_bad and p_all ~ c_numbers;
    v_breaks  boolean := strpos(p_all, E'\r') > 0 or octet_length(p_all) - octet_length(replace(p_all, E'\n', '')) >= cardinality(p_texts);
    v_judged  boolean := false;  -- every text has been judged by itself; what is left of them is good
    v_turn    bigint;
    v_faults  text[];
    v_keys    text[];
    v_ids     text[];
    v_values  json[];
begin
    if p_keys is not null and cardinality(p_keys) <> cardinality(p_texts)
       or p_ids is not null and cardinality(p_ids) <> cardinality(p_texts) then
        raise exception 'there must be as many keys and ids as events, or none; nothing was published' using errcode = 'array_subscript_error';
    elsif p_key_path <> v_own then
        raise exception 'stream "%" has the key "%", not "%"; nothing was published', p_stream, v_stream.key, array_to_string(p_key_path, '.')
            using errcode = 'JT130';
    end if;
    v_turn := nextval(format('jeet_internal.turn_%s', v_stream.id)::regclass);

    for v_round in 1 .. 3 loop
        if v_bad then
            select array_agg(coalesce(case when jeet_internal.is_suspect(text, v_numbers) then jeet_internal.event_fault(text) end,
                                      case when v_round > 1 then jeet_internal.row_fault(text, key, id, v_path, p_id_path) end) order by n)
              into v_faults
              from unnest(p_texts, p_keys, p_ids) with ordinality e (text, key, id, n);
            v_judged := true;
        end if;
        begin
            -- Each step is computed once, which `offset 0` sees to.
            select bool_or(bad), array_agg(n order by place, n), array_agg(place order by place, n),
                   array_agg(key order by place, n), array_agg(value order by place, n), array_agg(id order by place, n)
              into v_bad, written, partitions, v_keys, v_values, v_ids
              from (select n, value, key, id, bad or octet_length(key) > 1024 /*key_bytes*/ or octet_length(id) not between 1 and 1024 /*id_bytes*/ as bad,
                           coalesce(jeet.partition_of(coalesce(key, id), v_stream.partitions), ((v_turn + n) % v_stream.partitions)::int) as place
                      from (select n, coalesce(own_key, key) as key, coalesce(own_id, id) as id,
                                   case when v_breaks then translate(value::text, E'\n\r', '  ')::json else value end as value,
                                   suspect or value is null or own_key <> key or own_key is null and (key_json is not null or v_path is not null and key is null)
                                   or own_id is null and p_id_path is not null as bad
                              from (select n, suspect, value, key, id, key_json,
                                           jeet_internal.key_of_json(key_json) as own_key, jeet_internal.key_of_json(id_json) as own_id
                                      from (select n, suspect, value, key, id, jeet_internal.value_at(value, v_path)::text as key_json, jeet_internal.value_at(value, p_id_path)::text as id_json
                                              from (select n, text::json as value, key, id,
                                                           not v_judged and octet_length(text) > 256 and (octet_length(text) > 1048576 /*event_bytes*/ or jeet_internal.openers(text) > 128 /*depth*/) as suspect
                                                      from (select unnest(p_texts) as text, unnest(p_keys) as key, unnest(p_ids) as id, unnest(v_faults) as fault,
                                                                   generate_series(1, cardinality(p_texts)) as n) e
                                                     where fault is null
                                                    offset 0) parsed
                                            offset 0) located
                                    offset 0) read
                            offset 0) merged
                    offset 0) placed;
        exception when data_exception or statement_too_complex then
            v_bad := true;
        end;
        exit when v_bad is not true;
    end loop;
    if v_bad then
        raise exception 'an event was neither good nor refused; nothing was published' using errcode = 'internal_error';
    end if;

    select array_agg(n order by n), array_agg(fault order by n)
      into refused, reasons
      from unnest(v_faults) with ordinality f (fault, n) where fault is not null;
    repeated := 0;
    if written is null then
        return;
    elsif p_ids is null and p_id_path is null then
        offsets := jeet_internal.insert_rows(v_stream.id, partitions, v_keys, v_values);
    else
        select * into written, partitions, offsets, repeated
          from jeet_internal.insert_rows_once(v_stream.id, written, partitions, v_keys, v_values, v_ids);
    end if;
end $$;
revoke all on function jeet_internal.publish_rows(text, text[], text, text[], text[], text[], text[]) from public;

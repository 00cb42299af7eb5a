-- Why an event's text is refused, as 'code: what is wrong'; null if it is good. The codes, the limits and the verdicts are
-- those of jeet/sandbox/gate.py, so that an event and an output meet the same gate.
-- What is accepted: JSON as of RFC 8259. Of duplicate names the last counts, as in JavaScript, jsonb and Python; the text
-- is kept as it came. Numbers with a fraction or an exponent are doubles and may be rounded as such; integers are exact
-- or refused.
create or replace function jeet_internal.event_fault(p_text text) returns text
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    c_bytes    constant int := 1048576 /*event_bytes*/;
    c_depth    constant int := 128 /*depth*/;
    c_digits   constant int := 40 /*number_digits*/;
    c_exponent constant int := 308 /*number_exponent*/;
    c_string   constant text := '"(?:[^"\\]|\\.)*"?';  -- also one that never ends
    v_brackets text;
    v_error    record;
    v_token    text;
    v_exponent text;
begin
    if p_text is null then
        return 'not_json: is null';
    end if;
    if octet_length(p_text) > c_bytes then
        return format('event_bytes: has %s bytes, more than %s', octet_length(p_text), c_bytes);
    end if;

    -- Depth comes before any parser, as those recurse. Each round takes away the innermost pairs: one level.
    if jeet_internal.openers(p_text) > c_depth then
        v_brackets := translate(regexp_replace(regexp_replace(p_text, c_string, '', 'g'), '[^][{}]+', '', 'g'), '{}', '[]');
        for i in 1 .. c_depth loop
            exit when strpos(v_brackets, '[]') = 0;
            v_brackets := replace(v_brackets, '[]', '');
        end loop;
        if length(v_brackets) - length(replace(v_brackets, '[', '')) > c_depth or strpos(v_brackets, '[]') > 0 then
            return format('depth: is nested deeper than %s levels', c_depth);
        end if;
    end if;

    if not pg_input_is_valid(p_text, 'json') then
        select * into v_error from pg_input_error_info(p_text, 'json');
        return 'not_json: is not JSON: ' || regexp_replace(coalesce(v_error.detail, v_error.message), '\s+', ' ', 'g');
    end if;

    -- jsonb refuses just these escapes. What else it refuses are numbers, which come next.
    if p_text ~ '\\u(?:0000|[dD][89a-fA-F])' and not pg_input_is_valid(p_text, 'jsonb') then
        select * into v_error from pg_input_error_info(p_text, 'jsonb');
        if v_error.sql_error_code = '22P05' then
            return 'nul: holds a NUL character (\u0000)';
        elsif v_error.sql_error_code = '22P02' then
            return 'lone_surrogate: holds a lone surrogate (half of a character)';
        end if;
    end if;

    if p_text ~ '[0-9]{16}|[eE][-+]?[0-9]{3}' then
        for v_token in
            select m[1] from regexp_matches(regexp_replace(p_text, c_string, '""', 'g'), '(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)', 'g') m
             where length(m[1]) >= 16 or m[1] ~ '[eE]'
        loop
            if length(translate(v_token, '-+.eE', '')) > c_digits then
                return format('number_digits: holds the number %s, of more than %s digits', jeet_internal.shortened(v_token), c_digits);
            end if;
            if v_token ~ '^-?[0-9]+$' then
                if abs(v_token::numeric) > 9007199254740991 /*integer_range*/ then
                    return format('integer_range: holds the integer %s, past 2^53-1, where digits are lost: send it as a string',
                                  jeet_internal.shortened(v_token));
                end if;
                continue;
            end if;
            v_exponent := substring(v_token from '[eE](.*)');
            if length(v_exponent) > 5 or abs(v_exponent::int) > c_exponent then
                return format('number_exponent: holds the number %s, whose exponent is beyond %s', jeet_internal.shortened(v_token), c_exponent);
            end if;
            -- From halfway between the largest double and what would come next, a number becomes infinite.
            if abs(v_token::numeric) >= 2::numeric ^ 1024 - 2::numeric ^ 970 then
                return format('number_range: holds the number %s, which is too large', jeet_internal.shortened(v_token));
            end if;
            -- Here doubles begin to lose digits, and end as 0.
            if v_token::numeric <> 0 and abs(v_token::numeric) < 1e-308 then
                return format('number_range: holds the number %s, which is too small', jeet_internal.shortened(v_token));
            end if;
        end loop;
    end if;
    return null;
end $$;
revoke all on function jeet_internal.event_fault(text) from public;

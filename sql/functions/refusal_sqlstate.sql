-- The SQLSTATE that goes with a refusal's code. Class JT1: what a publisher asked for cannot be done as asked.
create or replace function jeet_internal.refusal_sqlstate(p_code text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case p_code
        when 'event_bytes' then 'JT101'
        when 'depth' then 'JT102'
        when 'not_json' then 'JT103'
        when 'nul' then 'JT104'
        when 'lone_surrogate' then 'JT105'
        when 'integer_range' then 'JT106'
        when 'number_digits' then 'JT107'
        when 'number_exponent' then 'JT108'
        when 'number_range' then 'JT109'
        when 'key_missing' then 'JT110'
        when 'key_type' then 'JT111'
        when 'key_bytes' then 'JT112'
        when 'key_mismatch' then 'JT113'
        when 'id_missing' then 'JT114'
        when 'id_type' then 'JT115'
        when 'id_bytes' then 'JT116'
        when 'headers_type' then 'JT117'
        when 'headers_bytes' then 'JT118'
        when 'ts_range' then 'JT119'
        when 'no_stream' then 'JT120'
        when 'over_lag' then 'JT121'
        when 'stream_setting' then 'JT130'
        when 'stream_exists' then 'JT131'
    end
$$;
revoke all on function jeet_internal.refusal_sqlstate(text) from public;

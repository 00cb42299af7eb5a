-- The stream that somebody wants to publish to; an error if there is none (JT120) or if its consumers are too far behind (JT121).
create or replace function jeet_internal.stream_for_publish(p_name text) returns jeet_internal.stream
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_stream jeet_internal.stream;
begin
    select * into v_stream from jeet_internal.stream where name = p_name and not internal;
    if not found and exists (select from jeet_internal.stream where name = p_name) then
        raise exception 'stream % joins two stages of a function and takes no events from outside; nothing was published. Publish to the function''s source',
            to_json(p_name) using errcode = 'JT120';
    elsif not found then
        raise exception 'there is no stream %; nothing was published. Make it with jeet create_stream, or deploy a function that names it',
            coalesce(to_json(p_name)::text, 'null') using errcode = 'JT120';
    elsif v_stream.over_lag then
        raise exception 'stream "%" is full: its consumers are more than % events behind; nothing was published. Try again later',
            p_name, v_stream.max_lag using errcode = 'JT121';
    end if;
    return v_stream;
end $$;
revoke all on function jeet_internal.stream_for_publish(text) from public;

-- Removes a stream that its function has let go of, with all its events. False: it is not one of those, or is gone.
-- Needs the whole log for a moment unless it was detached before; lock_timeout bounds the wait, and then it is tried again.
create or replace function jeet_internal.drop_stream(p_stream int) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform 1 from jeet_internal.stream s where s.id = p_stream and s.dropped for update;
    if not found or exists (select from jeet_internal.checkpoint c where c.stream_id = p_stream) then
        return false;
    end if;
    execute format('drop table if exists jeet_internal.event_%s', p_stream);
    execute format('drop sequence if exists jeet_internal.turn_%s', p_stream);
    delete from jeet_internal.stream s where s.id = p_stream;
    return true;
end $$;
revoke all on function jeet_internal.drop_stream(int) from public;

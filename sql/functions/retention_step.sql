-- What to do next to let go of old events of a stream; no step: nothing. A segment goes in steps, each of which may fail or be
-- interrupted and is found again from the catalogs: 'bar' (nothing may be appended to it any more), 'detach', 'drop'.
-- `statement` is to be run by itself, outside a transaction. Who owns the log detaches concurrently: that waits for those
-- who still read the stream and makes nobody wait. Who does not has a function for it, which gives up at the first lock.
create or replace function jeet_internal.retention_step(p_stream int, out step text, out segment bigint, out reason text, out statement text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_parent  regclass := format('jeet_internal.event_%s', p_stream)::regclass;
    v_pending boolean;
begin
    -- Left from before: one that is barred, half detached, or detached and not dropped.
    select h.barred into segment from jeet_internal.head h where h.stream_id = p_stream and h.barred is not null limit 1;
    if found then
        select i.inhdetachpending into v_pending
          from pg_inherits i
         where i.inhparent = v_parent and i.inhrelid = to_regclass(format('jeet_internal.event_%s_%s', p_stream, segment));
        if not found then
            step := 'drop';
            statement := format('select jeet_internal.drop_segment(%s, %s)', p_stream, segment);
        else
            step := 'detach';
            statement := case when pg_has_role((select relowner from pg_class where oid = v_parent), 'usage')
                              then format('alter table jeet_internal.event_%s detach partition jeet_internal.event_%1$s_%s %s',
                                          p_stream, segment, case when v_pending then 'finalize' else 'concurrently' end)
                              else format('select jeet_internal.detach_segment(%s, %s)', p_stream, segment) end;
        end if;
        return;
    end if;
    -- Detaching would wait for a transaction that has the stream open for long: let it end first.
    if exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                where l.relation = v_parent and l.granted and a.xact_start < clock_timestamp() - interval '2 s') then
        return;
    end if;
    for segment in
        select substring(c.relname from '[0-9]+$')::bigint
          from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = v_parent order by 1
    loop
        reason := jeet_internal.why_drop_segment(p_stream, segment);
        if reason is not null then
            step := 'bar';
            statement := format('select jeet_internal.bar_segment(%s, %s)', p_stream, segment);
            return;
        end if;
    end loop;
    segment := null;
end $$;
revoke all on function jeet_internal.retention_step(int) from public;

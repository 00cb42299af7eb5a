-- Makes the segments that a stream's partitions stand in and the two after them, and all from that of offset p_from on;
-- returns how many it made. Whoever sees the margin shrink calls it (p_wait false: if another is at it, that is enough);
-- who needs a segment that is missing waits. CREATE (LIKE) then ATTACH, as CREATE … PARTITION OF would queue appends behind
-- any open reader. The new table is empty and not yet visible to others, so ATTACH scans nothing and needs no CHECK for that.
create or replace function jeet_internal.ensure_segments(p_stream int, p_wait boolean default true, p_from bigint default null) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_size bigint;
    v_n    bigint;
    v_made int := 0;
begin
    -- SEGMENT_CLASS of jeet/db/keys.py; held to the end of the transaction, when others see what was made.
    if p_wait then
        perform pg_advisory_xact_lock(0x4A656573, p_stream);
    elsif not pg_try_advisory_xact_lock(0x4A656573, p_stream) then
        return 0;
    end if;
    select segment_size into v_size from jeet_internal.stream where id = p_stream;
    for v_n in
        select distinct n
          from jeet_internal.head h
         cross join generate_series(least(h.head, p_from) / v_size, h.head / v_size + 2) n
         where h.stream_id = p_stream
         order by 1
    loop
        -- to_regclass reads the catalog as it is now, also in a transaction with an older snapshot.
        continue when to_regclass(format('jeet_internal.event_%s_%s', p_stream, v_n)) is not null;
        execute format('create table jeet_internal.event_%s_%s (like jeet_internal.event including all)', p_stream, v_n);
        execute format('alter table jeet_internal.event_%s attach partition jeet_internal.event_%1$s_%s for values from (%s) to (%s)',
                       p_stream, v_n, v_n * v_size, (v_n + 1) * v_size);
        v_made := v_made + 1;
    end loop;
    return v_made;
end $$;
revoke all on function jeet_internal.ensure_segments(int, boolean, bigint) from public;

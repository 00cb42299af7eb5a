-- Why a segment may go: 'retention' (all of it is too old, and every deployed function, paused ones included, has passed it) or
-- 'max_bytes' (the stream is larger than it may be: this one may pass functions). Null: it has to stay.
-- A segment that any partition still writes to stays: a partition that gets little keeps up to one segment for longer.
create or replace function jeet_internal.why_drop_segment(p_stream int, p_segment bigint) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_stream jeet_internal.stream;
    v_start  bigint;
    v_end    bigint;
    v_newest timestamptz;
begin
    select * into strict v_stream from jeet_internal.stream where id = p_stream;
    v_start := p_segment * v_stream.segment_size;
    v_end := v_start + v_stream.segment_size;
    if exists (select from jeet_internal.head h where h.stream_id = p_stream and h.head >= v_start and h.head < v_end)
       or not exists (select from jeet_internal.head h where h.stream_id = p_stream and h.head >= v_end) then
        return null;
    end if;
    if jeet_internal.stream_bytes(p_stream) > v_stream.max_bytes then
        return 'max_bytes';
    end if;
    if v_stream.retention is null
       or exists (select from jeet_internal.checkpoint c
                    join jeet_internal.task t on t.id = c.task_id
                    join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                   where c.stream_id = p_stream and h.head >= v_end and (c.next_offset < v_end or c.stop_at is not null)) then
        return null;
    end if;
    -- Within a partition the last event is the newest.
    execute format('select max(e.published_at)
                      from jeet_internal.head h
                     cross join lateral (select published_at from jeet_internal.event_%s_%s
                                          where stream_id = h.stream_id and partition = h.partition order by "offset" desc limit 1) e
                     where h.stream_id = %1$s', p_stream, p_segment) into v_newest;
    return case when coalesce(v_newest < clock_timestamp() - v_stream.retention, true) then 'retention' end;
end $$;
revoke all on function jeet_internal.why_drop_segment(int, bigint) from public;

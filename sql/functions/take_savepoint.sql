-- Takes a savepoint of a function and returns its id. Nobody waits for it, tasks go on: each commit is one transaction, so
-- what one statement sees of checkpoints, state, timers and the heads of the streams between stages belongs together. What
-- those streams hold is copied after it: events below a head that was seen do not change.
-- What has drained for another graph is kept with the event time that it had before, as end_drain would set it.
create or replace function jeet_internal.take_savepoint(p_function int, p_why text, p_automatic boolean) returns int
language plpgsql as $$
declare
    v_id     int := nextval('jeet_internal.savepoint_id_seq');
    v_now    timestamptz := clock_timestamp();
    v_held   record;
    v_rows   bigint;
    v_bytes  bigint;
begin
    with tasks as (
        insert into jeet_internal.savepoint_task (savepoint_id, task_id, stage, partition, ttl_hold, clock, watermark, late)
        select v_id, t.id, t.stage, t.partition, jeet_internal.ttl_hold_now(t, v_now),
               case when f.draining then seen.watermark else t.clock end,
               case when f.draining then seen.watermark else t.watermark end, t.late
          from jeet_internal.function f
          join jeet_internal.task t on t.function_id = f.id
         cross join lateral (select min(c.watermark) as watermark from jeet_internal.checkpoint c where c.task_id = t.id) seen
         where f.id = p_function
    ), checkpoints as (
        insert into jeet_internal.savepoint_checkpoint (savepoint_id, task_id, stream, stream_id, internal, next_offset, watermark, head)
        select v_id, t.id, s.name, s.id, s.internal, c.next_offset, c.watermark, h.head
          from jeet_internal.task t
          join jeet_internal.checkpoint c on c.task_id = t.id
          join jeet_internal.stream s on s.id = c.stream_id
          join jeet_internal.head h on h.stream_id = s.id and h.partition = t.partition
         where t.function_id = p_function
    ), entries as (
        insert into jeet_internal.savepoint_state (savepoint_id, task_id, collection_id, key, value, expires_at, updated_at, version)
        select v_id, s.task_id, s.collection_id, s.key, s.value, s.expires_at, s.updated_at, s.version
          from jeet_internal.task t
          join jeet_internal.state s on s.task_id = t.id
         where t.function_id = p_function
        returning octet_length(key) + pg_column_size(value) as bytes
    ), timers as (
        insert into jeet_internal.savepoint_timer (savepoint_id, task_id, operator, key, name, at, wall)
        select v_id, r.task_id, r.operator, r.key, r.name, r.at, r.wall
          from jeet_internal.task t
          join jeet_internal.timer r on r.task_id = t.id
         where t.function_id = p_function
        returning octet_length(operator) + octet_length(key) + octet_length(name) as bytes
    ), letters as (
        insert into jeet_internal.savepoint_letter (savepoint_id, id, task_id, stream_id, "offset", key, event, error, stack, state_key,
                                                    attempts, version, failed_at)
        select v_id, d.id, d.task_id, d.stream_id, d."offset", d.key, d.event, d.error, d.stack, d.state_key, d.attempts, d.version, d.failed_at
          from jeet_internal.task t
          join jeet_internal.dead_letter d on d.task_id = t.id
         where t.function_id = p_function and d.status = 'open'
        returning pg_column_size(event) as bytes
    )
    insert into jeet_internal.savepoint (id, function_id, version, taken_at, why, automatic, entries, timers, events, letters, bytes)
    overriding system value
    select v_id, f.id, f.version, v_now, p_why, p_automatic, e.rows, r.rows, 0, l.rows, e.bytes + r.bytes + l.bytes
      from jeet_internal.function f
     cross join (select count(*) as rows, coalesce(sum(bytes), 0) as bytes from entries) e
     cross join (select count(*) as rows, coalesce(sum(bytes), 0) as bytes from timers) r
     cross join (select count(*) as rows, coalesce(sum(bytes), 0) as bytes from letters) l
     where f.id = p_function;
    if not found then
        raise exception 'no function %', p_function using errcode = 'no_data_found';
    end if;

    for v_held in
        select c.stream, c.stream_id, t.partition, min(c.next_offset) as first, max(c.head) as head
          from jeet_internal.savepoint_checkpoint c
          join jeet_internal.savepoint_task t on t.savepoint_id = v_id and t.task_id = c.task_id
         where c.savepoint_id = v_id and c.internal
         group by c.stream, c.stream_id, t.partition
        having min(c.next_offset) < max(c.head)
    loop
        -- The stream and the bounds as constants: parameters would lock the segments of all streams.
        execute format($sql$
            with held as (
                insert into jeet_internal.savepoint_event (savepoint_id, stream, partition, "offset", ts, key, headers, value)
                select %s, %L, partition, "offset", case when jeet_internal.is_time(ts) then ts else published_at end, key, headers, value
                  from jeet_internal.event
                 where stream_id = %s and partition = %s and "offset" >= %s and "offset" < %s
                returning coalesce(octet_length(key), 0) + pg_column_size(value) as bytes)
            select count(*), coalesce(sum(bytes), 0) from held$sql$,
            v_id, v_held.stream, v_held.stream_id, v_held.partition, v_held.first, v_held.head) into v_rows, v_bytes;
        if v_rows <> v_held.head - v_held.first then
            raise exception 'no savepoint can be taken: % of % events that are to be processed in partition % of % are not in the log; a change goes on without one if given --no_savepoint',
                v_held.head - v_held.first - v_rows, v_held.head - v_held.first, v_held.partition, v_held.stream using errcode = 'JT132';
        end if;
        update jeet_internal.savepoint set events = events + v_rows, bytes = bytes + v_bytes where id = v_id;
    end loop;
    return v_id;
end $$;

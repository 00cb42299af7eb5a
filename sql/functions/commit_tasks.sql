-- Write what the batches of one or several tasks did, all or nothing: the only way in which a task changes anything.
-- Called by a worker as one autocommitted statement. Lock order: tasks by id, checkpoints by task and stream, then the
-- heads of the output streams (in append), which others wait for: that is why append comes last.
-- JT001: an epoch has moved, the lease is lost. JT002: a checkpoint is not where the batch began, a timer that fired is not
-- there, or (TABLE is state) an entry to refresh is gone. DETAIL has the task ids.
-- Everything that a guest made arrives as a bound value; texts joined by line breaks are taken apart and cast here, so
-- that a value which is not JSON, a null or an unequal count fails the statement and nothing else.
-- Event time is in milliseconds since the epoch. What begins with p_clocks concerns tasks that go by event time; others leave it out.
create or replace function jeet_internal.commit_tasks(
    p_tasks int[], p_epochs bigint[],                                -- ascending
    p_input_tasks int[], p_input_streams int[], p_starts bigint[], p_ends bigint[],  -- ascending
    p_put_tasks int[], p_put_collections smallint[], p_put_expiries float8[],        -- expiry: ms since the epoch, or null
    p_put_keys text[], p_put_values text[], p_put_rows int,
    p_touch_tasks int[], p_touch_collections smallint[], p_touch_expiries float8[], p_touch_keys text[],
    p_delete_tasks int[], p_delete_collections smallint[], p_delete_keys text[],
    p_output_streams int[], p_output_keys text[], p_output_values text[],
    p_dead_letters json, p_logs json,                                -- null: none
    p_redriven bigint[], p_inbox bigint[],                           -- dead letters that went well now; all taken from the inbox
    p_clear_suspects boolean,
    p_clocks float8[] default null, p_late int[] default null,       -- with p_tasks; null: none known
    p_watermarks float8[] default null,                              -- of the inputs
    p_timer_tasks int[] default null, p_timer_operators text[] default null, p_timer_keys text[] default null,
    p_timer_names text[] default null, p_timer_ats float8[] default null, p_timer_walls boolean[] default null,  -- at null: cancelled
    p_fired_tasks int[] default null, p_fired_operators text[] default null, p_fired_keys text[] default null,
    p_fired_names text[] default null,                               -- timers that are done with
    p_output_times text[] default null                               -- with p_output_streams; a time for each value, or ''
) returns void language plpgsql as $$
declare
    c_epoch constant timestamptz := 'epoch';
    c_ms    constant interval := '1 millisecond';
    v_now  timestamptz := clock_timestamp();
    v_lost int[] := '{}';
    v_rows bigint;
    v_one  bigint;
    v_version  int;
    v_versions int[];  -- with p_tasks
begin
    -- The fence: its row locks make a takeover wait for this commit, or this commit for the takeover.
    for i in 1 .. cardinality(p_tasks) loop
        update jeet_internal.task
           set committed_at = v_now, crashes = 0, clock = greatest(clock, c_epoch + p_clocks[i] * c_ms), late = late + coalesce(p_late[i], 0)
         where id = p_tasks[i] and epoch = p_epochs[i]
        returning version into v_version;
        v_versions := v_versions || v_version;
        if not found then
            v_lost := v_lost || p_tasks[i];
        end if;
    end loop;
    if v_lost <> '{}' then
        raise exception 'task was taken over or changed' using errcode = 'JT001', detail = array_to_string(v_lost, ',');
    end if;

    for i in 1 .. cardinality(p_input_tasks) loop
        update jeet_internal.checkpoint
           set next_offset = p_ends[i], committed_at = v_now, watermark = greatest(watermark, c_epoch + p_watermarks[i] * c_ms)
         where task_id = p_input_tasks[i] and stream_id = p_input_streams[i] and next_offset = p_starts[i];
        if not found then
            v_lost := v_lost || p_input_tasks[i];
        end if;
    end loop;
    if v_lost <> '{}' then
        raise exception 'checkpoint is not where the batch began' using errcode = 'JT002', detail = array_to_string(v_lost, ',');
    end if;

    if cardinality(p_put_tasks) > 0 then
        insert into jeet_internal.state (task_id, collection_id, key, value, expires_at, updated_at, version)
        select g.task, g.collection, e.key, e.value::json, to_timestamp(g.expiry / 1000), v_now, g.version
          from (select p.*, v_versions[array_position(p_tasks, p.task)] as version
                  from unnest(p_put_tasks, p_put_collections, p_put_expiries, p_put_keys, p_put_values) p (task, collection, expiry, keys, vals)
                offset 0) g
         cross join lateral (select unnest(jeet_internal.strings_of(g.keys)) as key, unnest(string_to_array(g.vals, E'\n')) as value offset 0) e
            on conflict (task_id, collection_id, key) do update
           set value = excluded.value, expires_at = excluded.expires_at, updated_at = excluded.updated_at, version = excluded.version;
        get diagnostics v_rows = row_count;
        if v_rows <> p_put_rows then
            raise exception '% state entries arrived where % were announced', v_rows, p_put_rows using errcode = '22023';
        end if;
    end if;
    -- A statement for each collection, as its keys alone tell the rows: a join may be planned, when the table was nearly empty
    -- as it was looked at last, as a comparison of each key with the whole collection.
    v_rows := 0;
    for i in 1 .. cardinality(p_touch_tasks) loop
        update jeet_internal.state s set expires_at = to_timestamp(p_touch_expiries[i] / 1000)
         where s.task_id = p_touch_tasks[i] and s.collection_id = p_touch_collections[i]
           and s.key = any (jeet_internal.strings_of(p_touch_keys[i]));
        get diagnostics v_one = row_count;
        v_rows := v_rows + v_one;
    end loop;
    if cardinality(p_touch_tasks) > 0 and v_rows <> (select sum(cardinality(string_to_array(keys, E'\n'))) from unnest(p_touch_keys) keys) then
        -- An entry was swept between its event and this commit: the events run again and find it gone.
        select array_agg(distinct g.task) into v_lost
          from unnest(p_touch_tasks, p_touch_collections, p_touch_keys) g (task, collection, keys)
         cross join lateral unnest(jeet_internal.strings_of(g.keys)) e (key)
         where not exists (select from jeet_internal.state s
                            where s.task_id = g.task and s.collection_id = g.collection and s.key = e.key);
        if v_lost is null then
            raise exception 'a state entry is to be refreshed twice' using errcode = '22023';
        end if;
        raise exception 'a state entry to refresh is not there'
            using errcode = 'JT002', detail = array_to_string(v_lost, ','), schema = 'jeet_internal', table = 'state';
    end if;
    for i in 1 .. cardinality(p_delete_tasks) loop
        delete from jeet_internal.state s
         where s.task_id = p_delete_tasks[i] and s.collection_id = p_delete_collections[i]
           and s.key = any (jeet_internal.strings_of(p_delete_keys[i]));
    end loop;

    -- Fired timers go first: one that set itself again is there anew. One at a time, for the same reason.
    for i in 1 .. coalesce(cardinality(p_fired_tasks), 0) loop
        delete from jeet_internal.timer
         where task_id = p_fired_tasks[i] and operator = p_fired_operators[i] and key = p_fired_keys[i] and name = p_fired_names[i];
        if not found then
            v_lost := v_lost || p_fired_tasks[i];
        end if;
    end loop;
    if v_lost <> '{}' then
        raise exception 'a timer that fired is not there' using errcode = 'JT002', detail = array_to_string(v_lost, ',');
    end if;
    if cardinality(p_timer_tasks) > 0 then
        for i in 1 .. cardinality(p_timer_tasks) loop
            if p_timer_ats[i] is null then
                delete from jeet_internal.timer
                 where task_id = p_timer_tasks[i] and operator = p_timer_operators[i] and key = p_timer_keys[i] and name = p_timer_names[i];
            end if;
        end loop;
        insert into jeet_internal.timer (task_id, operator, key, name, at, wall)
        select s.task, s.operator, s.key, s.name, c_epoch + s.at * c_ms, s.wall
          from unnest(p_timer_tasks, p_timer_operators, p_timer_keys, p_timer_names, p_timer_ats, p_timer_walls) s (task, operator, key, name, at, wall)
         where s.at is not null
            on conflict (task_id, operator, key, name) do update
           set at = excluded.at, wall = excluded.wall, begun = false, attempts = 0;
    end if;
    -- What later stages see: not before everything that was due by then is done.
    if p_clocks is not null then
        update jeet_internal.task t set watermark = t.clock, watermark_at = v_now
         where t.id = any (p_tasks) and t.clock > coalesce(t.watermark, '-infinity')
           and not exists (select from jeet_internal.timer d where d.task_id = t.id and not d.wall and d.at <= t.clock);
    end if;

    if p_dead_letters is not null then
        insert into jeet_internal.dead_letter as d
               (task_id, stream_id, "offset", key, event, error, stack, state_key, attempts, version, failed_at)
        select task, stream, coalesce("offset", -nextval('jeet_internal.dead_letter_id_seq')), key, event, error, stack, state_key,
               attempts, version, v_now
          from json_to_recordset(p_dead_letters) as
               (task int, stream int, "offset" bigint, key text, event text, error text, stack text, state_key text, attempts int, version int)
            on conflict (task_id, stream_id, "offset") do update
           set attempts = d.attempts + excluded.attempts, error = excluded.error, stack = excluded.stack,
               state_key = excluded.state_key, version = excluded.version, failed_at = excluded.failed_at, status = 'open';
    end if;
    if p_logs is not null then
        insert into jeet_internal.log (function_id, version, partition, "offset", level, message, logged_at)
        select t.function_id, l.version, t.partition, l."offset", l.level, l.message, v_now
          from json_to_recordset(p_logs) as l (task int, version int, "offset" bigint, level text, message text)
          join jeet_internal.task t on t.id = l.task;
    end if;
    if cardinality(p_inbox) > 0 then
        delete from jeet_internal.inbox where task_id = any (p_tasks) and dead_letter_id = any (p_inbox);
        update jeet_internal.dead_letter set status = 'redriven', attempts = attempts + 1 where id = any (p_redriven);
    end if;
    if p_clear_suspects then
        delete from jeet_internal.suspect s using unnest(p_input_tasks, p_input_streams, p_ends) c (task, stream, next)
         where s.task_id = c.task and s.stream_id = c.stream and s."offset" < c.next;
    end if;

    if cardinality(p_output_streams) > 0 then
        perform jeet_internal.append(p_output_streams, p_output_keys, p_output_values, p_output_times);
    end if;
end $$;

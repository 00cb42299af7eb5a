-- Sets the tasks of a function to where a savepoint has them: checkpoints, state, timers, event time, open dead letters, and
-- what was under way between stages, which is handed on again. The function is the savepoint's own, or one made after it
-- with the same graph; the tasks of its stage p_new[i] take what those of stage p_old[i] had. Inside a change that has
-- fenced its tasks and has seen that what sources are to be read from is still there.
-- State's clock stood still while the savepoint lay there, unless the function's is never to.
create or replace function jeet_internal.restore_savepoint(p_savepoint int, p_function int, p_old int[], p_new int[])
returns void language plpgsql as $$
declare
    v_now      timestamptz := clock_timestamp();
    v_point    jeet_internal.savepoint;
    v_function jeet_internal.function;
    v_from     text;  -- how names of streams between stages begin, in the savepoint
    v_to       text;  -- and here
    v_old      int[];  -- tasks in the savepoint
    v_new      int[];  -- and here
    v_streams  int[];
    v_places   int[];
    v_counts   bigint[];
    v_names    text[];
    v_olds     bigint[];
    v_firsts   bigint[] := '{}';
    v_rows     bigint;
begin
    select * into strict v_point from jeet_internal.savepoint where id = p_savepoint and not dropped;
    select * into strict v_function from jeet_internal.function where id = p_function;
    select f.name || '/' into strict v_from from jeet_internal.function f where f.id = v_point.function_id;
    v_to := v_function.name || '/';

    select array_agg(old.task_id), array_agg(new.id)
      into v_old, v_new
      from jeet_internal.savepoint_task old
      join unnest(p_old, p_new) m (old, new) on m.old = old.stage
      join jeet_internal.task new on new.function_id = p_function and new.stage = m.new and new.partition = old.partition
     where old.savepoint_id = p_savepoint;
    if cardinality(v_old) is distinct from (select count(*) from jeet_internal.savepoint_task where savepoint_id = p_savepoint) then
        raise exception 'the tasks of savepoint % and of % differ', p_savepoint, v_function.name using errcode = 'JT132';
    end if;

    perform jeet_internal.end_rebuild(p_function);
    delete from jeet_internal.inbox i using jeet_internal.task t where t.function_id = p_function and i.task_id = t.id;
    delete from jeet_internal.suspect s using jeet_internal.task t where t.function_id = p_function and s.task_id = t.id;
    delete from jeet_internal.timer r using jeet_internal.task t where t.function_id = p_function and r.task_id = t.id;
    delete from jeet_internal.state s using jeet_internal.task t where t.function_id = p_function and s.task_id = t.id;
    -- Those that failed since, and those that somebody has dealt with since: what they did is undone.
    delete from jeet_internal.dead_letter d
     using jeet_internal.task t
     where t.function_id = p_function and d.task_id = t.id
       and (d.status = 'open' or d.failed_at > v_point.taken_at
            or exists (select from jeet_internal.savepoint_letter l where l.savepoint_id = p_savepoint and l.id = d.id));

    update jeet_internal.task t
       set clock = o.clock, watermark = o.watermark, watermark_at = case when o.watermark is not null then v_now end, late = o.late,
           crashes = 0, status = 'running', halt_reason = null, unowned_since = v_now,
           ttl_hold = o.ttl_hold + case when v_function.hold_ttl then v_now - v_point.taken_at else interval '0' end
      from unnest(v_old, v_new) m (old, new)
      join jeet_internal.savepoint_task o on o.savepoint_id = p_savepoint and o.task_id = m.old
     where t.id = m.new;
    update jeet_internal.function f
       set draining = false, status = case when f.status = 'failed' then 'running' else f.status end
     where f.id = p_function;

    insert into jeet_internal.state (task_id, collection_id, key, value, expires_at, updated_at, version)
    select m.new, s.collection_id, s.key, s.value, s.expires_at, s.updated_at, s.version
      from jeet_internal.savepoint_state s
      join unnest(v_old, v_new) m (old, new) on m.old = s.task_id
     where s.savepoint_id = p_savepoint;
    insert into jeet_internal.timer (task_id, operator, key, name, at, wall)
    select m.new, r.operator, r.key, r.name, r.at, r.wall
      from jeet_internal.savepoint_timer r
      join unnest(v_old, v_new) m (old, new) on m.old = r.task_id
     where r.savepoint_id = p_savepoint;

    -- What was under way goes to the end of its stream, in its order; its readers go on from there, and pass by what is left.
    select array_agg(s.id order by s.id, w.partition), array_agg(w.partition order by s.id, w.partition),
           array_agg(w.head - w.first order by s.id, w.partition), array_agg(w.stream order by s.id, w.partition),
           array_agg(w.first order by s.id, w.partition)
      into v_streams, v_places, v_counts, v_names, v_olds
      from (select c.stream, o.partition, min(c.next_offset) as first, max(c.head) as head
              from jeet_internal.savepoint_checkpoint c
              join jeet_internal.savepoint_task o on o.savepoint_id = c.savepoint_id and o.task_id = c.task_id
             where c.savepoint_id = p_savepoint and c.internal
             group by c.stream, o.partition) w
      join jeet_internal.stream s on s.name = v_to || substr(w.stream, length(v_from) + 1);
    for i in 1 .. coalesce(cardinality(v_streams), 0) loop
        if v_counts[i] > 0 then
            v_firsts := v_firsts || jeet_internal.take_offset(v_streams[i], v_places[i], v_counts[i]);
            insert into jeet_internal.event (stream_id, partition, "offset", ts, key, headers, value)
            select v_streams[i], v_places[i], e."offset" - v_olds[i] + v_firsts[i], e.ts, e.key, e.headers, e.value
              from jeet_internal.savepoint_event e
             where e.savepoint_id = p_savepoint and e.stream = v_names[i] and e.partition = v_places[i]
             order by e."offset";
            get diagnostics v_rows = row_count;
            if v_rows <> v_counts[i] then
                raise exception 'savepoint % lacks events of %', p_savepoint, v_names[i] using errcode = 'JT132';
            end if;
        else
            v_firsts := v_firsts || (select h.head from jeet_internal.head h where h.stream_id = v_streams[i] and h.partition = v_places[i]);
        end if;
    end loop;

    update jeet_internal.checkpoint c
       set next_offset = coalesce(u.first + s.next_offset - u.old, s.next_offset), watermark = s.watermark
      from jeet_internal.savepoint_checkpoint s
      join jeet_internal.savepoint_task o on o.savepoint_id = s.savepoint_id and o.task_id = s.task_id
      join unnest(v_old, v_new) m (old, new) on m.old = s.task_id
      left join unnest(v_names, v_places, v_olds, v_firsts, v_streams) u (stream, partition, old, first, id)
             on s.internal and u.stream = s.stream and u.partition = o.partition
     where s.savepoint_id = p_savepoint and c.task_id = m.new and c.stream_id = coalesce(u.id, s.stream_id);
    get diagnostics v_rows = row_count;
    if v_rows <> (select count(*) from jeet_internal.savepoint_checkpoint where savepoint_id = p_savepoint)
       or v_rows <> (select count(*) from jeet_internal.checkpoint c join jeet_internal.task t on t.id = c.task_id where t.function_id = p_function) then
        raise exception 'the streams of savepoint % and of % differ', p_savepoint, v_function.name using errcode = 'JT132';
    end if;

    -- They stay with the function, by their ids; those of a stream that was made anew since are of events that are no more.
    if v_point.function_id = p_function then
        insert into jeet_internal.dead_letter (id, task_id, stream_id, "offset", key, event, error, stack, state_key, attempts, version, failed_at)
        overriding system value
        select l.id, m.new, l.stream_id, l."offset", l.key, l.event, l.error, l.stack, l.state_key, l.attempts, l.version, l.failed_at
          from jeet_internal.savepoint_letter l
          join unnest(v_old, v_new) m (old, new) on m.old = l.task_id
         where l.savepoint_id = p_savepoint
           and (l.stream_id is null or exists (select from jeet_internal.checkpoint c where c.task_id = m.new and c.stream_id = l.stream_id));
    end if;
end $$;

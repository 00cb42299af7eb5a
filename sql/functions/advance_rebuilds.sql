-- Brings functions that are built again into their next phase, those that are through the one before; returns how many moved.
-- Anybody may call it at any time. Each move is one transaction that fences the tasks, so whoever dies, a phase holds or the
-- next one does; state and positions move in commits as ever.
--
--   settle   sources stand still; what had been read goes through all stages, and is sent as ever. Then, and only then, all
--            that was made of events before the place where sources stand has been sent.
--            Should something be gone by then that the replay needs, it ends here, with nothing changed (why_end_rebuild).
--   replay   state and event time have begun anew, and sources are read from their beginning up to that place. What stages
--            hand on to one another is handed on; what leaves the function is not. No task's clock comes further than it was,
--            and no timer by the clock on the wall fires: those that were pending are kept for afterwards (end_rebuild).
--   close    one stage after the other comes to the event time that it had, where it did not come by itself (who rests is told
--            by the clock on the wall). So exactly the timers have fired that had fired.
-- Then sources are read on, and what is made is sent.
create or replace function jeet_internal.advance_rebuilds() returns int language plpgsql as $$
declare
    v_one   jeet_internal.rebuild;
    v_lock  text := current_setting('lock_timeout');
    v_moved int := 0;
    v_why   text;
begin
    for v_one in
        select r.* from jeet_internal.rebuild r
          join jeet_internal.function f on f.id = r.function_id
         where f.status = 'running'
         order by r.function_id
    loop
        continue when (select l.events + l.others from jeet_internal.rebuild_left(v_one.function_id) l) > 0;
        -- CHANGE_LOCK of jeet/db/keys.py: who changes functions is not kept waiting.
        continue when not pg_try_advisory_xact_lock(0x4A656563, 4);
        begin
            perform set_config('lock_timeout', '200ms', true);
            select * into strict v_one from jeet_internal.rebuild r where r.function_id = v_one.function_id for update;
            perform jeet_internal.fence_tasks(v_one.function_id);
            perform set_config('lock_timeout', v_lock, true);
            if (select l.events + l.others from jeet_internal.rebuild_left(v_one.function_id) l) > 0 then
                raise exception 'something came in between' using errcode = 'object_in_use';
            end if;

            v_why := case when v_one.phase = 'settle' then jeet_internal.why_end_rebuild(v_one) end;
            if v_why is not null then
                perform jeet_internal.end_rebuild(v_one.function_id);
                update jeet_internal.function set rebuild_failed = v_why where id = v_one.function_id;
                raise warning 'a rebuild has ended, and changed nothing: %', v_why;
            elsif v_one.phase = 'settle' then
                update jeet_internal.task set clock_limit = coalesce(clock, '-infinity') where function_id = v_one.function_id;
                insert into jeet_internal.kept_timer (task_id, operator, key, name, at, begun, attempts)
                select r.task_id, r.operator, r.key, r.name, r.at, r.begun, r.attempts
                  from jeet_internal.task t
                  join jeet_internal.timer r on r.task_id = t.id and r.wall
                 where t.function_id = v_one.function_id;
                perform jeet_internal.forget_progress(v_one.function_id);
                -- Retention waits for sources that stop somewhere (why_drop_segment).
                update jeet_internal.checkpoint c set next_offset = least(h.first_offset, c.stop_at), watermark = null
                  from jeet_internal.task t, jeet_internal.head h
                 where t.function_id = v_one.function_id and c.task_id = t.id and c.stop_at is not null
                   and h.stream_id = c.stream_id and h.partition = t.partition;
                update jeet_internal.rebuild set phase = 'replay' where function_id = v_one.function_id;
            elsif v_one.closing < cardinality(v_one.stages) then
                update jeet_internal.task t set clock = greatest(t.clock, nullif(t.clock_limit, '-infinity'))
                 where t.function_id = v_one.function_id and t.stage = v_one.stages[v_one.closing + 1];
                update jeet_internal.rebuild set phase = 'close', closing = closing + 1 where function_id = v_one.function_id;
            else
                update jeet_internal.task t set watermark = t.clock, watermark_at = clock_timestamp()
                 where t.function_id = v_one.function_id and t.clock > coalesce(t.watermark, '-infinity');
                perform jeet_internal.end_rebuild(v_one.function_id);
            end if;
            v_moved := v_moved + 1;
        exception
            when lock_not_available or object_in_use or no_data_found then
                null;  -- next time
        end;
    end loop;
    return v_moved;
end $$;

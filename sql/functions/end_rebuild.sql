-- A function is not, or no longer, built again: its sources are read on, and what it makes is sent. Inside a change that has
-- fenced its tasks.
-- Its timers by the clock on the wall are those that were pending before the replay: of what the replay set besides, all has
-- fired, or was cancelled, in its time.
create or replace function jeet_internal.end_rebuild(p_function int) returns void language sql as $$
    delete from jeet_internal.timer r
     using jeet_internal.task t, jeet_internal.rebuild b
     where t.function_id = p_function and r.task_id = t.id and r.wall and b.function_id = p_function and b.phase <> 'settle';
    with kept as (
        delete from jeet_internal.kept_timer k using jeet_internal.task t where t.function_id = p_function and k.task_id = t.id
        returning k.*
    )
    insert into jeet_internal.timer (task_id, operator, key, name, at, wall, begun, attempts)
    select k.task_id, k.operator, k.key, k.name, k.at, true, k.begun, k.attempts from kept k
        on conflict (task_id, operator, key, name) do update  -- the replay gave it an event time
       set at = excluded.at, wall = true, begun = excluded.begun, attempts = excluded.attempts;
    delete from jeet_internal.rebuild where function_id = p_function;
    update jeet_internal.function set rebuild_failed = null where id = p_function and rebuild_failed is not null;
    update jeet_internal.checkpoint c set stop_at = null
      from jeet_internal.task t
     where t.function_id = p_function and c.task_id = t.id and c.stop_at is not null;
    update jeet_internal.task set clock_limit = null where function_id = p_function and clock_limit is not null
$$;

-- Bumps the epoch of each task of a function, so that nothing of what ran before can commit any more once this commits;
-- nobody owns the tasks until a worker takes them again. Returns their number. Rows are locked by id, ascending, each as
-- it stands after the wait; a caller sets lock_timeout, as a stalled worker may sit on one of them.
-- The hold of state's clock counts from the moment in which the task lost its owner, which may lie before this one.
create or replace function jeet_internal.fence_tasks(p_function int) returns int language plpgsql as $$
declare
    v_task int;
    v_rows int := 0;
begin
    for v_task in select t.id from jeet_internal.task t where t.function_id = p_function order by t.id loop
        perform from jeet_internal.task t where t.id = v_task for no key update;
        update jeet_internal.task t
           set epoch = t.epoch + 1, worker_id = null, backend_pid = null,
               unowned_since = coalesce(t.unowned_since,
                   (select w.heartbeat_at from jeet_internal.worker w where w.id = t.worker_id and w.status = 'lost'),
                   clock_timestamp())
         where t.id = v_task;
        v_rows := v_rows + 1;
    end loop;
    perform pg_notify('jeet_control', 'function ' || p_function);
    return v_rows;
end $$;

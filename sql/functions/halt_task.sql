-- Stop a function at an event that it must not skip: nothing after it is processed until somebody resumes the function.
-- False: the lease is lost, and the new owner decides. Locks the function before the task, as control changes do.
create or replace function jeet_internal.halt_task(p_task int, p_epoch bigint, p_reason text) returns boolean language plpgsql as $$
declare
    v_function int;
begin
    select f.id into v_function from jeet_internal.function f join jeet_internal.task t on t.function_id = f.id
     where t.id = p_task for no key update of f;
    update jeet_internal.task set status = 'halted', halt_reason = p_reason, epoch = epoch + 1
     where id = p_task and epoch = p_epoch;
    if not found then
        return false;
    end if;
    update jeet_internal.function set status = 'failed' where id = v_function;
    perform pg_notify('jeet_control', 'function ' || v_function);
    return true;
end $$;

-- Mark redriven events as running, in a transaction of its own, before they run: should they end the process, whoever takes
-- the task over counts that (acquire_tasks). False: the lease is lost.
create or replace function jeet_internal.begin_redrives(p_task int, p_epoch bigint, p_letters bigint[]) returns boolean language plpgsql as $$
begin
    perform from jeet_internal.task where id = p_task and epoch = p_epoch for update;
    if not found then
        return false;
    end if;
    update jeet_internal.inbox set begun = true
     where task_id = p_task and dead_letter_id = any (p_letters) and not begun;
    return true;
end $$;

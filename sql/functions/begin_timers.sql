-- Mark timers as running, in a transaction of its own, before they fire: should they end the process, whoever takes the task
-- over counts that (acquire_tasks). False: the lease is lost.
create or replace function jeet_internal.begin_timers(p_task int, p_epoch bigint, p_operators text[], p_keys text[], p_names text[])
returns boolean language plpgsql as $$
begin
    perform from jeet_internal.task where id = p_task and epoch = p_epoch for update;
    if not found then
        return false;
    end if;
    update jeet_internal.timer t set begun = true
      from unnest(p_operators, p_keys, p_names) b (operator, key, name)
     where t.task_id = p_task and t.operator = b.operator and t.key = b.key and t.name = b.name and not t.begun;
    return true;
end $$;

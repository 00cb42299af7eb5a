-- A function is not, or no longer, built again: its sources are read on, and what it makes is sent. Inside a change that has
-- fenced its tasks.
create or replace function jeet_internal.end_rebuild(p_function int) returns void language sql as $$
    delete from jeet_internal.rebuild where function_id = p_function;
    update jeet_internal.checkpoint c set stop_at = null
      from jeet_internal.task t
     where t.function_id = p_function and c.task_id = t.id and c.stop_at is not null;
    update jeet_internal.task set clock_limit = null where function_id = p_function and clock_limit is not null
$$;

-- What the tasks of a function have kept goes: state, timers, event time, what waits to run again; their open dead letters are
-- given up. Returns how many entries of state and how many dead letters that were. Inside a change that has fenced them.
create or replace function jeet_internal.forget_progress(p_function int, out entries bigint, out letters bigint)
language plpgsql as $$
begin
    delete from jeet_internal.inbox i using jeet_internal.task t where t.function_id = p_function and i.task_id = t.id;
    delete from jeet_internal.suspect s using jeet_internal.task t where t.function_id = p_function and s.task_id = t.id;
    delete from jeet_internal.timer r using jeet_internal.task t where t.function_id = p_function and r.task_id = t.id;
    delete from jeet_internal.state s using jeet_internal.task t where t.function_id = p_function and s.task_id = t.id;
    get diagnostics entries = row_count;
    update jeet_internal.dead_letter d set status = 'dropped'
      from jeet_internal.task t
     where t.function_id = p_function and d.task_id = t.id and d.status = 'open';
    get diagnostics letters = row_count;
    update jeet_internal.task t
       set clock = null, watermark = null, watermark_at = null, late = 0, crashes = 0
     where t.function_id = p_function;
end $$;

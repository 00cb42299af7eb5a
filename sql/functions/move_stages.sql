-- Gives the tasks of a function's stages other numbers: those of stage p_old[i] become stage p_new[i]; tasks of stages that
-- are not named are put aside, below zero, until drop_stages. Inside a change of the function, which has fenced them.
create or replace function jeet_internal.move_stages(p_function int, p_old int[], p_new int[]) returns void language sql as $$
    -- In two steps, as (function, stage, partition) is unique at every row.
    update jeet_internal.task t
       set stage = -1 - coalesce((select m.new from unnest(p_old, p_new) m (old, new) where m.old = t.stage), 1000000 + t.stage)
     where t.function_id = p_function and t.stage >= 0;
    update jeet_internal.task t set stage = -1 - t.stage
     where t.function_id = p_function and t.stage > -1000000
$$;

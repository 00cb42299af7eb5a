-- What operators of a stage have kept means nothing to the version that takes over: state and timers of these names go.
create or replace function jeet_internal.forget_operators(p_function int, p_stage int, p_names text[]) returns void language sql as $$
    delete from jeet_internal.state s
     using jeet_internal.task t, jeet_internal.collection c
     where t.function_id = p_function and t.stage = p_stage and c.function_id = p_function and c.name = any (p_names)
       and s.task_id = t.id and s.collection_id = c.id;
    delete from jeet_internal.timer r
     using jeet_internal.task t
     where t.function_id = p_function and t.stage = p_stage and r.task_id = t.id and r.operator = any (p_names)
$$;

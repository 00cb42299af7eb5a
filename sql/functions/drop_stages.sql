-- After move_stages and what a new version has added: tasks that nobody runs any more go, with all they hold; so do
-- checkpoints in streams that the stage of a task does not read in this version.
create or replace function jeet_internal.drop_stages(p_function int, p_version int) returns void language sql as $$
    delete from jeet_internal.task t where t.function_id = p_function and t.stage < 0;
    delete from jeet_internal.checkpoint c
     using jeet_internal.task t, jeet_internal.stage g
     where t.function_id = p_function and c.task_id = t.id
       and g.function_id = p_function and g.version = p_version and g.stage = t.stage and c.stream_id <> all (g.inputs)
$$;

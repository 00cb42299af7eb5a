-- From now on a function's tasks read their sources no further, and those that tell the time say that it is at its end:
-- later stages use up what lies between them and close what is open. The caller fences the tasks, so that nothing read
-- under the old rules is committed.
create or replace function jeet_internal.begin_drain(p_function int) returns void language sql as $$
    update jeet_internal.function set draining = true where id = p_function;
    update jeet_internal.task t set clock = jeet_internal.end_of_time()
      from jeet_internal.function f
      join jeet_internal.stage g on g.function_id = f.id and g.version = f.version
     where f.id = p_function and t.function_id = f.id and t.stage = g.stage and (g.plan ->> 'timed')::boolean
       and not exists (select from jsonb_array_elements(g.plan -> 'inputs') i
                        where (i ->> 'internal')::boolean and not (i ->> 'table')::boolean)
$$;

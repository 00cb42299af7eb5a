-- Open dead letters of a function that a rebuild would leave unsent: all but those of events that came late, which change nothing
-- when they are processed again.
create or replace function jeet_internal.letters_in_the_way(p_function int) returns bigint language sql stable as $$
    select count(*) filter (where d.error not like 'late for %' or d.stack <> '')
      from jeet_internal.dead_letter d
      join jeet_internal.task t on t.id = d.task_id
     where t.function_id = p_function and d.status = 'open'
$$;

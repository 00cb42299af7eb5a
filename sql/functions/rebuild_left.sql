-- What is left to do for a function that is built again, in the phase at hand: events of its sources up to where they stop, events
-- between its stages, timers that are due, redriven dead letters. Behind its fence, 0 says that the phase is through.
create or replace function jeet_internal.rebuild_left(p_function int, out events bigint, out others bigint) language sql stable as $$
    select coalesce(sum(greatest(c.stop_at - c.next_offset, 0)), 0)::bigint,
           (coalesce(sum(h.head - c.next_offset) filter (where c.stop_at is null), 0)
            + (select count(*) from jeet_internal.task d
                 join jeet_internal.timer r on r.task_id = d.id and not r.wall and r.at <= d.clock
                where d.function_id = p_function)
            + (select count(*) from jeet_internal.task d
                 join jeet_internal.inbox i on i.task_id = d.id
                where d.function_id = p_function))::bigint
      from jeet_internal.task t
      join jeet_internal.checkpoint c on c.task_id = t.id
      join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
     where t.function_id = p_function
$$;

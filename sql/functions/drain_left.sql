-- What a draining function still has to use up, by stage: events in its internal streams, event-time timers, redriven dead
-- letters. Nothing in any stage: it has drained, and stays so while its tasks are fenced or drain on.
-- A task that tells the time and has nothing left to do at its end lets later stages know: it would have nothing to commit.
create or replace function jeet_internal.drain_left(p_function int)
returns table (stage int, events bigint, timers bigint, letters bigint, halted text) language plpgsql as $$
#variable_conflict use_column
declare
    v_task int;
begin
    for v_task in select t.id from jeet_internal.task t
                   where t.function_id = p_function and t.clock = jeet_internal.end_of_time() and t.watermark is distinct from t.clock
                   order by t.id
    loop
        -- Behind a commit that sets timers, if there is one under way.
        perform from jeet_internal.task t where t.id = v_task for no key update;
        update jeet_internal.task t set watermark = t.clock, watermark_at = clock_timestamp()
         where t.id = v_task
           and not exists (select from jeet_internal.timer r where r.task_id = v_task and not r.wall);
    end loop;
    return query
    select t.stage, sum(coalesce(w.events, 0))::bigint, sum(r.timers)::bigint, sum(i.letters)::bigint, min(t.halt_reason)
      from jeet_internal.task t
      left join lateral (select sum(h.head - c.next_offset) as events
                           from jeet_internal.checkpoint c
                           join jeet_internal.stream s on s.id = c.stream_id and s.internal
                           join jeet_internal.head h on h.stream_id = s.id and h.partition = t.partition
                          where c.task_id = t.id) w on true
     cross join lateral (select count(*) as timers from jeet_internal.timer r where r.task_id = t.id and not r.wall) r
     cross join lateral (select count(*) as letters from jeet_internal.inbox i where i.task_id = t.id) i
     where t.function_id = p_function
     group by t.stage
     order by t.stage;
end $$;

-- A function reads its sources again, where it stood; its clocks go by what was seen in them. False: it was not draining.
-- Inside a change that has fenced its tasks.
create or replace function jeet_internal.end_drain(p_function int) returns boolean language plpgsql as $$
begin
    update jeet_internal.function set draining = false where id = p_function and draining;
    if not found then
        return false;
    end if;
    update jeet_internal.task t set clock = seen.watermark, watermark = seen.watermark
      from (select o.id, min(c.watermark) as watermark
              from jeet_internal.task o left join jeet_internal.checkpoint c on c.task_id = o.id
             where o.function_id = p_function
             group by o.id) seen
     where t.id = seen.id;
    return true;
end $$;

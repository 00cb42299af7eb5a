-- Deletes at most p_limit entries of a task that expired more than p_grace ago by the task's own clock; returns how many.
-- Never waits: entries that a commit has locked are left for the next time. The clock only goes forward, so an entry that
-- has expired when it is read stays so, unless it was written since: the DELETE checks again.
create or replace function jeet_internal.sweep_state(p_task int, p_limit int, p_grace interval) returns int
language plpgsql as $$
declare
    v_before timestamptz;
    v_rows   int;
begin
    select clock_timestamp() - jeet_internal.ttl_hold_now(t, clock_timestamp()) - p_grace into v_before
      from jeet_internal.task t where t.id = p_task;
    with doomed as materialized (
        select s.collection_id, s.key
          from jeet_internal.state s
         where s.task_id = p_task and s.expires_at <= v_before
         order by s.expires_at
         limit p_limit
           for update skip locked
    )
    delete from jeet_internal.state s
     using doomed d
     where s.task_id = p_task and s.collection_id = d.collection_id and s.key = d.key and s.expires_at <= v_before;
    get diagnostics v_rows = row_count;
    return v_rows;
end $$;

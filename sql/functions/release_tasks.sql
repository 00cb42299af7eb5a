-- Give tasks back on purpose: their next owner is no crash, and state's clock stands still from now. The caller unlocks
-- and notifies afterwards, on the connection that holds the advisory locks.
create or replace function jeet_internal.release_tasks(p_worker int, p_tasks int[]) returns void language plpgsql as $$
declare
    v_task int;
begin
    foreach v_task in array (select coalesce(array_agg(id order by id), '{}') from unnest(p_tasks) id) loop
        update jeet_internal.task set worker_id = null, backend_pid = null, unowned_since = clock_timestamp()
         where id = v_task and worker_id = p_worker;
    end loop;
end $$;

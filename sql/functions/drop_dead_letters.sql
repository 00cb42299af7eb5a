-- Gives dead letters up; returns how many that were open. One that waits to be redriven may be in a worker's hands at this
-- moment: its task's epoch is bumped first, so that the redrive cannot commit any more.
create or replace function jeet_internal.drop_dead_letters(p_ids bigint[]) returns int language plpgsql as $$
declare
    v_task int;
    v_rows int;
begin
    for v_task in
        select distinct i.task_id from jeet_internal.inbox i where i.dead_letter_id = any (p_ids) order by 1
    loop
        perform from jeet_internal.task t where t.id = v_task for no key update;
        update jeet_internal.task t
           set epoch = t.epoch + 1, worker_id = null, backend_pid = null,
               unowned_since = coalesce(t.unowned_since, clock_timestamp())
         where t.id = v_task;
        perform pg_notify('jeet_control', 'task ' || v_task);
    end loop;
    delete from jeet_internal.inbox i where i.dead_letter_id = any (p_ids);
    update jeet_internal.dead_letter d set status = 'dropped' where d.id = any (p_ids) and d.status = 'open';
    get diagnostics v_rows = row_count;
    return v_rows;
end $$;

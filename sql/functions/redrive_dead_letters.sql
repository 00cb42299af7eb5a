-- Hands open dead letters back to the tasks that failed, which run them again out of their order and commit that like any
-- batch. Returns how many it queued; those that wait already are not queued twice.
create or replace function jeet_internal.redrive_dead_letters(p_ids bigint[]) returns int language plpgsql as $$
declare
    v_tasks int[];
    v_rows  int;
begin
    with wanted as materialized (
        select d.id, d.task_id
          from jeet_internal.dead_letter d
         where d.id = any (p_ids) and d.status = 'open'
           and not exists (select from jeet_internal.inbox i where i.task_id = d.task_id and i.dead_letter_id = d.id)
         order by d.id
           for update
    ), queued as (
        insert into jeet_internal.inbox (task_id, dead_letter_id)
        select w.task_id, w.id from wanted w
            on conflict do nothing
        returning task_id
    )
    select count(*), array_agg(distinct q.task_id) into v_rows, v_tasks from queued q;
    perform pg_notify('jeet_control', 'task ' || t) from unnest(v_tasks) t;
    return v_rows;
end $$;

-- Hands open dead letters back to the tasks that failed, which run them again out of their order and commit that like any
-- batch. Returns how many it queued; those that wait already are not queued twice. A timer is set again, as it was, and is due
-- at once; one that was set anew meanwhile stays as it is.
create or replace function jeet_internal.redrive_dead_letters(p_ids bigint[]) returns int language plpgsql as $$
declare
    v_tasks int[];
    v_rows  int;
    v_timer_tasks int[];
    v_timers      int;
begin
    with failed as materialized (
        select d.id, d.task_id, d.key, d.event::jsonb -> 'timer' as timer
          from jeet_internal.dead_letter d
         where d.id = any (p_ids) and d.status = 'open' and d.stream_id is null
         order by d.id
           for update
    ), armed as (
        insert into jeet_internal.timer (task_id, operator, key, name, at, wall)
        select f.task_id, f.timer ->> 'operator', coalesce(f.key, ''), f.timer ->> 'name', (f.timer ->> 'at')::timestamptz,
               (f.timer ->> 'wall')::boolean
          from failed f
            on conflict do nothing
    ), done as (
        update jeet_internal.dead_letter d set status = 'redriven' from failed f where d.id = f.id returning d.task_id
    )
    select count(*), array_agg(distinct d.task_id) into v_timers, v_timer_tasks from done d;
    with wanted as materialized (
        select d.id, d.task_id
          from jeet_internal.dead_letter d
         where d.id = any (p_ids) and d.status = 'open' and d.stream_id is not null
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
    perform pg_notify('jeet_control', 'task ' || t) from unnest(v_tasks || v_timer_tasks) t;
    return v_rows + v_timers;
end $$;

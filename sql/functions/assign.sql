-- Who should run what: makes jeet_internal.assignment say p_workers[i] for p_tasks[i], and nothing about other tasks.
-- Only rows that differ are touched. Workers that have gone and tasks that have gone are left out: the coordinator
-- looks again. Nothing depends on it for correctness: the lease decides.
create or replace function jeet_internal.assign(p_tasks int[], p_workers int[], out removed int, out changed int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if cardinality(p_tasks) <> cardinality(p_workers) then
        raise exception 'assign: % tasks, % workers', cardinality(p_tasks), cardinality(p_workers);
    end if;
    delete from jeet_internal.assignment a where a.task_id <> all (p_tasks);
    get diagnostics removed = row_count;
    insert into jeet_internal.assignment as a (task_id, worker_id)
    select t.id, w.id
      from unnest(p_tasks, p_workers) as p(task_id, worker_id)
      join jeet_internal.task t on t.id = p.task_id
      join jeet_internal.worker w on w.id = p.worker_id and w.status = 'running'
     order by t.id
        on conflict (task_id) do update
       set worker_id = excluded.worker_id, assigned_at = clock_timestamp()
     where a.worker_id <> excluded.worker_id;
    get diagnostics changed = row_count;
    if removed + changed > 0 then
        perform pg_notify('jeet_control', 'assign');
    end if;
end $$;

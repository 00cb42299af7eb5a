-- Mark each event of [p_start, p_end) as running, in a transaction of its own, before they run: should one of them end the
-- process, whoever takes the task over counts that (acquire_tasks). False: the lease is lost.
create or replace function jeet_internal.record_suspects(p_task int, p_epoch bigint, p_stream int, p_start bigint, p_end bigint)
returns boolean language plpgsql as $$
begin
    perform from jeet_internal.task where id = p_task and epoch = p_epoch for update;
    if not found then
        return false;
    end if;
    insert into jeet_internal.suspect as s (task_id, stream_id, "offset", begun)
    select p_task, p_stream, o, true from generate_series(p_start, p_end - 1) o
        on conflict (task_id, stream_id, "offset") do update set begun = true where not s.begun;
    return true;
end $$;

-- Add what a worker's tasks did since it last said so; p_figures has a row for each task that did something. Times are
-- the database's: of the worker only lengths of time are taken. Replaces what it says of itself, and its tasks' hot keys.
-- Returns the database's clock.
create or replace function jeet_internal.record_figures(p_worker int, p_figures jsonb, p_hot_keys jsonb, p_self jsonb)
returns timestamptz language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    insert into jeet_internal.task_figures as f
           (task_id, span_s, at, since, until, events, outputs, bytes, batches, cut, errors, dead_letters, cpu_s, sandbox_s, fetch_s,
            state_s, commit_s, state_requests, state_misses, instances, recycled, memory_bytes, slowest_s, slowest_stream, slowest_offset)
    select x.task_id, 60, date_trunc('minute', v_now), v_now - make_interval(secs => x.seconds), v_now, x.events, x.outputs, x.bytes_in,
           x.batches, x.cut, x.errors, x.dead_letters, x.cpu_s, x.sandbox_s, x.fetch_s, x.state_s, x.commit_s, x.state_requests,
           x.state_misses, x.instances, x.recycled, x.memory_bytes, x.slowest_s, x.slowest_stream, x.slowest_offset
      from jsonb_to_recordset(p_figures) x (task_id int, seconds float8, events bigint, outputs bigint, bytes_in bigint, batches bigint,
           cut bigint, errors bigint, dead_letters bigint, cpu_s float8, sandbox_s float8, fetch_s float8, state_s float8,
           commit_s float8, state_requests bigint, state_misses bigint, instances bigint, recycled bigint, memory_bytes bigint,
           slowest_s float8, slowest_stream int, slowest_offset bigint)
     order by x.task_id
        on conflict (task_id, span_s, at) do update
       set until = excluded.until, events = f.events + excluded.events, outputs = f.outputs + excluded.outputs,
           bytes = f.bytes + excluded.bytes, batches = f.batches + excluded.batches, cut = f.cut + excluded.cut,
           errors = f.errors + excluded.errors, dead_letters = f.dead_letters + excluded.dead_letters,
           cpu_s = f.cpu_s + excluded.cpu_s, sandbox_s = f.sandbox_s + excluded.sandbox_s, fetch_s = f.fetch_s + excluded.fetch_s,
           state_s = f.state_s + excluded.state_s, commit_s = f.commit_s + excluded.commit_s,
           state_requests = f.state_requests + excluded.state_requests, state_misses = f.state_misses + excluded.state_misses,
           instances = f.instances + excluded.instances, recycled = f.recycled + excluded.recycled,
           memory_bytes = excluded.memory_bytes,
           slowest_s = greatest(f.slowest_s, excluded.slowest_s),
           slowest_stream = case when excluded.slowest_s > coalesce(f.slowest_s, 0) then excluded.slowest_stream else f.slowest_stream end,
           slowest_offset = case when excluded.slowest_s > coalesce(f.slowest_s, 0) then excluded.slowest_offset else f.slowest_offset end;
    -- A key stays hot for as long as each look at its task says so; how long that has been is told by the oldest of them.
    with x as (
        select x.* from jsonb_to_recordset(p_hot_keys) x (task_id int, stream_id int, distinct_keys int, keys jsonb)
    ), cooled as (
        delete from jeet_internal.hot_key h
         using x
         where h.task_id = x.task_id and h.stream_id = x.stream_id
           and not exists (select from jsonb_array_elements(x.keys) k where k ->> 'key' = h.key)
    )
    insert into jeet_internal.hot_key as h (task_id, stream_id, key, share, share_error, sandbox_share, sandbox_error, keys, since, at)
    select x.task_id, x.stream_id, k.key, k.share, k.error, k.sandbox_share, k.sandbox_error, x.distinct_keys, v_now, v_now
      from x
     cross join lateral jsonb_to_recordset(x.keys) k (key text, share real, error real, sandbox_share real, sandbox_error real)
        on conflict (task_id, stream_id, key) do update
       set share = excluded.share, share_error = excluded.share_error, sandbox_share = excluded.sandbox_share,
           sandbox_error = excluded.sandbox_error, keys = excluded.keys, at = excluded.at,
           since = case when h.at > v_now - interval '3 minutes' then h.since else excluded.since end;
    insert into jeet_internal.worker_figures as f
           (worker_id, at, memory_bytes, guest_bytes, instances, lanes, busy, clock_offset_ms, clock_error_ms, python, wasmtime)
    select w.id, v_now, x.memory_bytes, x.guest_bytes, x.instances, x.lanes, x.busy, x.clock_offset_ms, x.clock_error_ms, x.python, x.wasmtime
      from jsonb_to_record(p_self) x (memory_bytes bigint, guest_bytes bigint, instances int, lanes int, busy real,
                                      clock_offset_ms float8, clock_error_ms float8, python text, wasmtime text)
      join jeet_internal.worker w on w.id = p_worker
        on conflict (worker_id) do update
       set at = excluded.at, memory_bytes = excluded.memory_bytes, guest_bytes = excluded.guest_bytes, instances = excluded.instances,
           lanes = excluded.lanes, busy = excluded.busy, clock_offset_ms = excluded.clock_offset_ms,
           clock_error_ms = excluded.clock_error_ms, python = excluded.python, wasmtime = excluded.wasmtime;
    return v_now;
end $$;

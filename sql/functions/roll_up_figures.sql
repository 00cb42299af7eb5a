-- Turn at most p_limit minutes of figures that are older than p_age into hours, and return how many that were. One
-- statement: a row is either a minute still or in its hour. Never waits: what another run holds is left to it.
create or replace function jeet_internal.roll_up_figures(p_age interval, p_limit int) returns int
language plpgsql as $$
declare
    v_rows int;
begin
    with old as materialized (
        select f.task_id, f.at
          from jeet_internal.task_figures f
         where f.span_s = 60 and f.at < statement_timestamp() - p_age
         order by f.at
         limit p_limit
           for update skip locked
    ), taken as (
        delete from jeet_internal.task_figures f
         using old o
         where f.task_id = o.task_id and f.span_s = 60 and f.at = o.at
        returning f.*
    ), hours as (
        insert into jeet_internal.task_figures as f
               (task_id, span_s, at, since, until, events, outputs, bytes, batches, cut, errors, dead_letters, cpu_s, sandbox_s, fetch_s,
                state_s, commit_s, state_requests, state_misses, instances, recycled, memory_bytes, slowest_s, slowest_stream, slowest_offset)
        select t.task_id, 3600, date_trunc('hour', t.at), min(t.since), max(t.until), sum(t.events), sum(t.outputs), sum(t.bytes),
               sum(t.batches), sum(t.cut), sum(t.errors), sum(t.dead_letters), sum(t.cpu_s), sum(t.sandbox_s), sum(t.fetch_s),
               sum(t.state_s), sum(t.commit_s), sum(t.state_requests), sum(t.state_misses), sum(t.instances), sum(t.recycled),
               max(t.memory_bytes), max(t.slowest_s), (array_agg(t.slowest_stream order by t.slowest_s desc nulls last))[1],
               (array_agg(t.slowest_offset order by t.slowest_s desc nulls last))[1]
          from taken t
         group by t.task_id, date_trunc('hour', t.at)
            on conflict (task_id, span_s, at) do update
           set since = least(f.since, excluded.since), until = greatest(f.until, excluded.until), events = f.events + excluded.events,
               outputs = f.outputs + excluded.outputs, bytes = f.bytes + excluded.bytes, batches = f.batches + excluded.batches,
               cut = f.cut + excluded.cut, errors = f.errors + excluded.errors, dead_letters = f.dead_letters + excluded.dead_letters,
               cpu_s = f.cpu_s + excluded.cpu_s, sandbox_s = f.sandbox_s + excluded.sandbox_s, fetch_s = f.fetch_s + excluded.fetch_s,
               state_s = f.state_s + excluded.state_s, commit_s = f.commit_s + excluded.commit_s,
               state_requests = f.state_requests + excluded.state_requests, state_misses = f.state_misses + excluded.state_misses,
               instances = f.instances + excluded.instances, recycled = f.recycled + excluded.recycled,
               memory_bytes = greatest(f.memory_bytes, excluded.memory_bytes), slowest_s = greatest(f.slowest_s, excluded.slowest_s),
               slowest_stream = case when excluded.slowest_s > coalesce(f.slowest_s, 0) then excluded.slowest_stream else f.slowest_stream end,
               slowest_offset = case when excluded.slowest_s > coalesce(f.slowest_s, 0) then excluded.slowest_offset else f.slowest_offset end
    )
    select count(*) into v_rows from taken;
    return v_rows;
end $$;

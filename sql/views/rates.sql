-- How fast events come and are processed, and where the time goes: a row for each task and stream that it reads. Rates are
-- averages over the last minute or two, from positions that the coordinator notes; shares are of the last minutes in which
-- the task had something to do. (An index is not searched by clock_timestamp(), which has no one value in a statement.)
create or replace view jeet.rates as
with spent as (
    select g.task_id, sum(g.events) as events, sum(g.batches) as batches, sum(g.cut) as cut, sum(g.cpu_s) as cpu_s,
           sum(g.sandbox_s) as sandbox_s, sum(g.fetch_s) as fetch_s, sum(g.state_s) as state_s, sum(g.commit_s) as commit_s,
           sum(g.state_misses) as state_misses, sum(g.errors) as errors, sum(g.recycled) as recycled,
           (array_agg(g.memory_bytes order by g.at desc))[1] as memory_bytes,
           -- Commits overlap with what runs next, so it can add up to more than the time that went by.
           greatest(extract(epoch from max(g.until) - min(g.since))::float8,
                    sum(g.sandbox_s + g.fetch_s + g.state_s + g.commit_s), 0.001) as elapsed_s
      from jeet_internal.task_figures g
     where g.span_s = 60 and g.at >= date_trunc('minute', statement_timestamp()) - interval '1 minute'
     group by g.task_id
), moved as (
    select f.name as function, t.stage, s.name as stream, t.partition, t.id as task_id, h.head, c.next_offset, c.stream_id,
           greatest(h.head - c.next_offset, 0) as lag,
           greatest(h.head - came."offset", 0) / nullif(greatest(extract(epoch from clock_timestamp() - came.at)::float8, 1), 0) as arrival_per_s,
           -- A reset or restore moves it back.
           greatest(c.next_offset - went."offset", 0) / nullif(greatest(extract(epoch from clock_timestamp() - went.at)::float8, 1), 0) as processed_per_s
      from jeet_internal.function f
      join jeet_internal.task t on t.function_id = f.id
      join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = t.stage
      join jeet_internal.checkpoint c on c.task_id = t.id and c.stream_id = any (g.inputs)
      join jeet_internal.stream s on s.id = c.stream_id
      join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
     cross join lateral jeet_internal.position_before(c.stream_id, 0, 0, t.partition, interval '55 seconds') came
     cross join lateral jeet_internal.position_before(c.stream_id, f.id, t.stage, t.partition, interval '55 seconds') went
)
select m.function, m.stage, m.stream, m.partition, m.arrival_per_s, m.processed_per_s, m.lag,
       case when m.lag > 0
            then clock_timestamp() - jeet_internal.published_at(m.stream_id, m.partition, m.next_offset) end as oldest_age,
       case when m.lag = 0 then 0
            when m.processed_per_s > m.arrival_per_s then m.lag / (m.processed_per_s - m.arrival_per_s) end as drain_s,
       (p.events / nullif(p.batches, 0))::float8 as batch_events,
       1 - (p.sandbox_s + p.fetch_s + p.state_s + p.commit_s) / p.elapsed_s as share_waiting,
       p.sandbox_s / p.elapsed_s as share_sandbox,
       (p.fetch_s + p.state_s + p.commit_s) / p.elapsed_s as share_database,
       case greatest(p.fetch_s, p.state_s, p.commit_s) when 0 then null when p.commit_s then 'commit' when p.fetch_s then 'fetch'
            when p.state_s then 'read_state' end as busiest_statement,
       p.cpu_s * 1e6 / nullif(p.events, 0) as cpu_us_per_event,
       p.cut / nullif(p.batches, 0)::float8 as share_cut,
       greatest(1 - p.state_misses / nullif(p.events, 0)::float8, 0) as cache_hit_rate,
       p.memory_bytes, p.recycled, p.errors
  from moved m
  left join spent p on p.task_id = m.task_id;

comment on view jeet.rates is 'How fast events come and are processed in each task, and where its time goes';
comment on column jeet.rates.function is 'the function';
comment on column jeet.rates.stage is 'the stage of its graph, from 0';
comment on column jeet.rates.stream is 'the stream it reads';
comment on column jeet.rates.partition is 'the partition it reads';
comment on column jeet.rates.arrival_per_s is 'events appended a second, on average over the last minute or two; null: no coordinator has noted positions yet';
comment on column jeet.rates.processed_per_s is 'events processed and committed a second, likewise';
comment on column jeet.rates.lag is 'events that wait';
comment on column jeet.rates.oldest_age is 'how long the oldest waiting event has been in the log; null when none waits';
comment on column jeet.rates.drain_s is 'seconds until none waits if both rates stay as they are; null: it does not catch up';
comment on column jeet.rates.batch_events is 'events in a batch, on average; like what follows over the last minutes in which the task did something, null: it did nothing';
comment on column jeet.rates.share_waiting is 'share of the time in which the task waited, for events or for its turn';
comment on column jeet.rates.share_sandbox is 'share of the time in which its JavaScript ran';
comment on column jeet.rates.share_database is 'share of the time in which it waited for the database: for events, for state, for commits';
comment on column jeet.rates.busiest_statement is 'which of them took longest: fetch, read_state or commit';
comment on column jeet.rates.cpu_us_per_event is 'CPU time of the guest''s thread for an event, in microseconds';
comment on column jeet.rates.share_cut is 'share of batches that ended before their last event, as their time slice (JEET_SLICE_MS) was over';
comment on column jeet.rates.cache_hit_rate is 'one less keys of state read from the database for an event: how much of state the guest had at hand, at one key an event';
comment on column jeet.rates.memory_bytes is 'memory of its guest instance';
comment on column jeet.rates.recycled is 'times in the last minutes that its instance was replaced as it had grown too large';
comment on column jeet.rates.errors is 'batches in the last minutes that failed or were undone';

-- How far each task is behind the streams it reads. A row for each task and input from the moment of the deploy.
create or replace view jeet.lag as
select f.name as function, t.stage, s.name as stream, t.partition, h.head, c.next_offset,
       greatest(h.head - c.next_offset, 0) as lag,
       case when h.head > c.next_offset
            then clock_timestamp() - jeet_internal.published_at(c.stream_id, t.partition, c.next_offset) end as oldest_age,
       t.worker_id as worker
  from jeet_internal.function f
  join jeet_internal.task t on t.function_id = f.id
  -- The inputs of the version that should run: an earlier version may have read other streams.
  join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = t.stage
  join jeet_internal.checkpoint c on c.task_id = t.id and c.stream_id = any (g.inputs)
  join jeet_internal.stream s on s.id = c.stream_id
  join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition;

comment on view jeet.lag is 'How far each task is behind each stream it reads';
comment on column jeet.lag.function is 'the function';
comment on column jeet.lag.stage is 'the stage of its graph, from 0';
comment on column jeet.lag.stream is 'the stream it reads';
comment on column jeet.lag.partition is 'the partition it reads';
comment on column jeet.lag.head is 'the offset that the next event of the partition will get';
comment on column jeet.lag.next_offset is 'the offset that the task processes next, as committed';
comment on column jeet.lag.lag is 'events that wait: head less next_offset';
comment on column jeet.lag.oldest_age is 'how long the oldest waiting event has been in the log; null when none waits';
comment on column jeet.lag.worker is 'the worker that runs the task, as in jeet.workers.id; null: nobody';

-- The slowest event of each task and minute (hour), if any was slow enough to be noticed by the clock that bounds guests:
-- it ticks each 20 ms, so whatever takes 40 ms of CPU time is noticed, and what takes less than 20 ms only if it came alone.
create or replace view jeet.slowest_events as
select f.name as function, t.stage, s.name as stream, t.partition, g.slowest_offset as "offset", g.slowest_s * 1000 as cpu_ms,
       g.at, g.span_s * interval '1 second' as span
  from jeet_internal.task_figures g
  join jeet_internal.task t on t.id = g.task_id
  join jeet_internal.function f on f.id = t.function_id
  left join jeet_internal.stream s on s.id = g.slowest_stream
 where g.slowest_s is not null;

comment on view jeet.slowest_events is 'The slowest event of each task in each minute of the last two hours, and in each hour of a week';
comment on column jeet.slowest_events.function is 'the function';
comment on column jeet.slowest_events.stage is 'the stage of its graph, from 0';
comment on column jeet.slowest_events.stream is 'the stream the event is in';
comment on column jeet.slowest_events.partition is 'its partition';
comment on column jeet.slowest_events."offset" is 'its offset';
comment on column jeet.slowest_events.cpu_ms is 'CPU time that it took at least, in milliseconds: at most 40 more, exactly if it was alone in its batch';
comment on column jeet.slowest_events.at is 'start of the minute or hour';
comment on column jeet.slowest_events.span is 'one minute or one hour';

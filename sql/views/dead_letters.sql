create or replace view jeet.dead_letters as
select d.id, f.name as function, t.stage, t.partition, d."offset", d.key, d.event, d.error, d.stack, d.attempts, d.version,
       d.failed_at, d.status, s.name as stream, d.state_key
  from jeet_internal.dead_letter d
  join jeet_internal.task t on t.id = d.task_id
  join jeet_internal.function f on f.id = t.function_id
  left join jeet_internal.stream s on s.id = d.stream_id;

comment on view jeet.dead_letters is 'Events whose processing failed, set aside so that others could go on';
comment on column jeet.dead_letters.id is 'number to name it by, as in: jeet dlq show';
comment on column jeet.dead_letters.function is 'the function that failed';
comment on column jeet.dead_letters.stage is 'the stage of its graph, from 0';
comment on column jeet.dead_letters.partition is 'the partition of the event';
comment on column jeet.dead_letters."offset" is 'the offset of the event in that partition; below 0: a timer';
comment on column jeet.dead_letters.key is 'the key of the event';
comment on column jeet.dead_letters.event is 'the event as text, made safe and cut with a mark if it is long; of a timer {"timer": {operator, name, at, wall}}';
comment on column jeet.dead_letters.error is 'what went wrong';
comment on column jeet.dead_letters.stack is 'where: lines of the function''s own file';
comment on column jeet.dead_letters.attempts is 'how often it was tried';
comment on column jeet.dead_letters.version is 'the version of the function that failed last';
comment on column jeet.dead_letters.failed_at is 'when it failed last';
comment on column jeet.dead_letters.status is 'open (jeet dlq list says queued while one waits to be run again), redriven (went well later; of a timer: set again) or dropped (given up by a person)';
comment on column jeet.dead_letters.stream is 'the stream the event was read from; null: a timer';
comment on column jeet.dead_letters.state_key is 'the state entry last touched before the failure';

create or replace view jeet.checkpoints as
select f.name as function, t.stage, s.name as stream, t.partition, c.next_offset, c.watermark, t.epoch, t.version, c.committed_at
  from jeet_internal.function f
  join jeet_internal.task t on t.function_id = f.id
  join jeet_internal.checkpoint c on c.task_id = t.id
  join jeet_internal.stream s on s.id = c.stream_id;

comment on view jeet.checkpoints is 'Where each task stands in each stream it reads, as committed together with its state and outputs';
comment on column jeet.checkpoints.function is 'the function';
comment on column jeet.checkpoints.stage is 'the stage of its graph, from 0';
comment on column jeet.checkpoints.stream is 'the stream it reads';
comment on column jeet.checkpoints.partition is 'the partition';
comment on column jeet.checkpoints.next_offset is 'the offset that is processed next; everything before it is done';
comment on column jeet.checkpoints.watermark is 'event time up to which everything is believed seen; null: not used by this function';
comment on column jeet.checkpoints.epoch is 'the task''s lease epoch';
comment on column jeet.checkpoints.version is 'the version of the function that the task runs';
comment on column jeet.checkpoints.committed_at is 'when the last batch was committed; null: none yet';

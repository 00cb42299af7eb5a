-- Keys that bring far more than their share, found by each worker in a random part of its tasks' events (observe/hotkeys.py).
-- A partition's only key is no more than that; it is hot if its partition has half as much again as a fair part of the stream.
create or replace view jeet.hot_keys as
with share as (  -- of its stage's events, by task
    select t.id, t.function_id, t.stage, t.partition,
           coalesce(sum(g.events) / nullif(sum(sum(g.events)) over stage, 0), 0)::float8 as of_stage, count(*) over stage as partitions
      from jeet_internal.task t
      left join jeet_internal.task_figures g
             on g.task_id = t.id and g.span_s = 60 and g.at >= date_trunc('minute', statement_timestamp()) - interval '1 minute'
     group by t.id
    window stage as (partition by t.function_id, t.stage)
)
select f.name as function, t.stage, s.name as stream, t.partition, k.key, k.share, k.share_error as error,
       k.share * t.of_stage as share_of_stage, k.sandbox_share, k.sandbox_error, k.since, k.at
  from jeet_internal.hot_key k
  join share t on t.id = k.task_id
  join jeet_internal.function f on f.id = t.function_id
  join jeet_internal.stream s on s.id = k.stream_id
 where k.at > statement_timestamp() - interval '3 minutes' and (k.keys is distinct from 1 or t.of_stage >= 1.5 / t.partitions);

comment on view jeet.hot_keys is 'Keys that bring a tenth or more of a task''s events, or of its work, and more than a fair share of it';
comment on column jeet.hot_keys.function is 'the function';
comment on column jeet.hot_keys.stage is 'the stage of its graph, from 0';
comment on column jeet.hot_keys.stream is 'the stream it reads';
comment on column jeet.hot_keys.partition is 'the partition';
comment on column jeet.hot_keys.key is 'the key of these events';
comment on column jeet.hot_keys.share is 'share of the events of this partition, over the last half minute or minute';
comment on column jeet.hot_keys.error is 'the true share is within this of it, with 99 % confidence';
comment on column jeet.hot_keys.share_of_stage is 'share of the events of all partitions, about';
comment on column jeet.hot_keys.sandbox_share is 'share of the time in the sandbox; null: too little of it was seen';
comment on column jeet.hot_keys.sandbox_error is 'the true share of that is within this of it, with 99 % confidence';
comment on column jeet.hot_keys.since is 'since when it has been so';
comment on column jeet.hot_keys.at is 'when it was seen last';

-- State as it is committed now. Fast by function, collection and key: each task's rows are found by its primary key.
create or replace view jeet.state as
select f.name as function, t.stage, t.partition, c.name as collection, s.key,
       -- JSON that jsonb refuses (a NUL escape, half a surrogate pair, a number out of range) is shown as its text.
       case when pg_input_is_valid(s.value::text, 'jsonb') then s.value::text::jsonb else to_jsonb(s.value::text) end as value,
       s.expires_at + clock.hold as expires_at, s.updated_at
  from jeet_internal.state s
  join jeet_internal.task t on t.id = s.task_id
 -- Once a task, not once a row (OFFSET keeps it apart).
 cross join lateral (select jeet_internal.ttl_hold_now(t, clock_timestamp()) as hold offset 0) clock
  join jeet_internal.function f on f.id = t.function_id
  join jeet_internal.collection c on c.function_id = t.function_id and c.id = s.collection_id
 where s.expires_at is null or s.expires_at + clock.hold > clock_timestamp();

comment on view jeet.state is 'Keyed state of functions as it is committed now; what has expired is not shown, whether or not it was cleaned up';
comment on column jeet.state.function is 'the function that owns the state';
comment on column jeet.state.stage is 'the stage of its graph, from 0';
comment on column jeet.state.partition is 'the partition of its task';
comment on column jeet.state.collection is 'state.<collection> in the function';
comment on column jeet.state.key is 'state.<collection>[key] in the function';
comment on column jeet.state.value is 'the value; JSON that jsonb cannot hold is shown as a string of its text';
comment on column jeet.state.expires_at is 'when it expires, pauses of its clock included; null: never';
comment on column jeet.state.updated_at is 'when the batch that last wrote it was committed';

-- How far event time has come in each task that goes by it, and who holds it back. A source of a task is a stream that it
-- reads or, behind an internal stream, a task of the stage that writes it; the rules are those of jeet/task/watermark.py.
create or replace view jeet.watermarks as
with recursive timed as (
    select t.id, t.function_id, f.name as function, t.stage, t.partition, t.clock, t.watermark, t.watermark_at, t.late,
           g.version, g.inputs, g.plan, (g.plan ->> 'idle_ms')::float8 * interval '1 millisecond' as idle
      from jeet_internal.function f
      join jeet_internal.task t on t.function_id = f.id
      join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = t.stage
     where (g.plan ->> 'timed')::boolean
), input as (
    select t.id, t.function_id, t.version, t.partition, t.idle, t.clock, i.stream_id, (p.input ->> 'internal')::boolean as internal
      from timed t
     cross join lateral unnest(t.inputs) with ordinality i (stream_id, n)
     cross join lateral jsonb_array_elements(t.plan -> 'inputs') with ordinality p (input, n)
     where p.n = i.n and not (p.input ->> 'table')::boolean
), above as (  -- stages from which events come to `below`, over any number of others
    select g.function_id, g.version, g.stage as below, u.stage
      from jeet_internal.stage g
      join jeet_internal.stream s on s.id = any (g.inputs) and s.internal
      join jeet_internal.stage u on u.function_id = g.function_id and u.version = g.version and s.id = any (u.outputs)
    union
    select a.function_id, a.version, a.below, u.stage
      from above a
      join jeet_internal.stage g on g.function_id = a.function_id and g.version = a.version and g.stage = a.stage
      join jeet_internal.stream s on s.id = any (g.inputs) and s.internal
      join jeet_internal.stage u on u.function_id = g.function_id and u.version = g.version and s.id = any (u.outputs)
), standing as (
    select t.id, t.function_id, t.version, t.stage, t.partition, t.watermark, t.committed_at,
           t.clock is not distinct from t.watermark
           and not exists (select from jeet_internal.checkpoint c
                             join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                            where c.task_id = t.id and c.stream_id = any (g.inputs) and h.head > c.next_offset) as done
      from jeet_internal.function f
      join jeet_internal.task t on t.function_id = f.id
      join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = t.stage
), source as (
    select i.id, s.name as name, c.watermark, i.clock,
           h.head <= c.next_offset and (c.watermark is null or c.committed_at <= clock_timestamp() - i.idle) as rests
      from input i
      join jeet_internal.stream s on s.id = i.stream_id
      join jeet_internal.checkpoint c on c.task_id = i.id and c.stream_id = i.stream_id
      join jeet_internal.head h on h.stream_id = i.stream_id and h.partition = i.partition
     where not i.internal
    union all
    select i.id, format('stage %s partition %s', u.stage, u.partition),
           u.watermark - (m.plan ->> 'hold_ms')::float8 * interval '1 millisecond', i.clock,
           -- Who has stages above is no more at rest than they are (read_clocks.sql).
           u.done and (u.watermark is null or u.committed_at <= clock_timestamp() - i.idle)
           and not exists (select from above a
                             join standing v on v.function_id = a.function_id and v.stage = a.stage
                            where a.function_id = i.function_id and a.version = i.version and a.below = u.stage
                              and not (v.done and (v.watermark is null
                                                   or u.watermark is not null and v.committed_at <= clock_timestamp() - i.idle)))
      from input i
      join jeet_internal.stage m on m.function_id = i.function_id and m.version = i.version and i.stream_id = any (m.outputs)
      join standing u on u.function_id = i.function_id and u.stage = m.stage
     where i.internal
)
select t.function, t.stage, t.partition, t.watermark,
       case when t.clock is distinct from t.watermark then 'timers that are due'
            else (select s.name from source s
                   where s.id = t.id and not s.rests and (s.clock is null or s.watermark >= s.clock)
                   order by s.watermark nulls first, s.name limit 1) end as held_by,
       t.watermark_at as since, t.late,
       least((select min(d.at) from jeet_internal.timer d where d.task_id = t.id and not d.wall),
             (select min(d.at) from jeet_internal.timer d where d.task_id = t.id and d.wall)) as next_timer
  from timed t;

comment on view jeet.watermarks is 'How far event time has come in each task of a function with windows, timers or joins of streams';
comment on column jeet.watermarks.function is 'the function';
comment on column jeet.watermarks.stage is 'the stage of its graph, from 0';
comment on column jeet.watermarks.partition is 'the partition';
comment on column jeet.watermarks.watermark is 'event time up to which everything is believed seen, and what was due is done; null: no event yet';
comment on column jeet.watermarks.held_by is 'what keeps it from moving on: a stream, a task of an earlier stage, or timers that are due; null: nothing is to be expected';
comment on column jeet.watermarks.since is 'when it moved last';
comment on column jeet.watermarks.late is 'events that came after all their windows had closed';
comment on column jeet.watermarks.next_timer is 'the earliest timer that is set; null: none is';

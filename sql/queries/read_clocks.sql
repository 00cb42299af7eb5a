-- What the clocks of tasks ($1) go by, as of one snapshot, so that a watermark is read together with the heads behind which
-- everything lies that was written up to it. One row; the lists are JSON, each entry an array:
--   inputs   task, stream, head of its partition there, next offset, ms since the last commit of that input
--   timers   task, time of its first timer that goes by event time, of its first that goes by this clock
--   upstream function, stage, watermark, ms since the last commit, whether all is done that was waiting or due, first timer
-- for each task of the stages ($2, $3). Times are in ms since the epoch. Who has stages above is no more at rest than they
-- are: what they have yet to make may be of any time that their own watermarks allow. So the last commit is that of all, all
-- of them are to be done, and who has no watermark while one above has it is about to get one.
with recursive maker as (
    select distinct w.function_id, w.stage, f.version
      from unnest($2::int[], $3::int[]) w (function_id, stage)
      join jeet_internal.function f on f.id = w.function_id
), above as (  -- stages from which events come to `below`, over any number of others
    select m.function_id, m.version, m.stage as below, u.stage
      from maker m
      join jeet_internal.stage g on g.function_id = m.function_id and g.version = m.version and g.stage = m.stage
      join jeet_internal.stream s on s.id = any (g.inputs) and s.internal
      join jeet_internal.stage u on u.function_id = m.function_id and u.version = m.version and s.id = any (u.outputs)
    union
    select a.function_id, a.version, a.below, u.stage
      from above a
      join jeet_internal.stage g on g.function_id = a.function_id and g.version = a.version and g.stage = a.stage
      join jeet_internal.stream s on s.id = any (g.inputs) and s.internal
      join jeet_internal.stage u on u.function_id = a.function_id and u.version = a.version and s.id = any (u.outputs)
), standing as materialized (
    select t.id, t.function_id, t.stage, t.watermark, t.committed_at,
           t.clock is not distinct from t.watermark
           and not exists (select from jeet_internal.stage g
                             join jeet_internal.checkpoint c on c.task_id = t.id and c.stream_id = any (g.inputs)
                             join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                            where g.function_id = t.function_id and g.version = t.version and g.stage = t.stage
                              and h.head > c.next_offset) as done
      from (select function_id, stage from maker union select function_id, stage from above) w
      join jeet_internal.task t on t.function_id = w.function_id and t.stage = w.stage
)
select (extract(epoch from clock_timestamp()) * 1000)::float8 as now_ms,
       (select json_agg(json_build_array(c.task_id, c.stream_id, h.head, c.next_offset,
                                         (extract(epoch from clock_timestamp() - c.committed_at) * 1000)::float8)
                        order by c.task_id, c.stream_id)
          from jeet_internal.task t
          join jeet_internal.checkpoint c on c.task_id = t.id
          join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
         where t.id = any ($1::int[])) as inputs,
       (select json_agg(json_build_array(w.task, e.at_ms, a.at_ms) order by w.task)
          from unnest($1::int[]) w (task)
         cross join lateral (select round(extract(epoch from min(d.at)) * 1000)::float8 as at_ms from jeet_internal.timer d
                              where d.task_id = w.task and not d.wall) e
         cross join lateral (select round(extract(epoch from min(d.at)) * 1000)::float8 as at_ms from jeet_internal.timer d
                              where d.task_id = w.task and d.wall) a
         where e.at_ms is not null or a.at_ms is not null) as timers,
       (select json_agg(json_build_array(t.function_id, t.stage, round(extract(epoch from t.watermark) * 1000)::float8,
                                         (extract(epoch from clock_timestamp() - greatest(t.committed_at, b.committed_at)) * 1000)::float8,
                                         t.done and coalesce(b.done, true) and (t.watermark is not null or b.committed_at is null),
                                         (select round(extract(epoch from min(d.at)) * 1000)::float8 from jeet_internal.timer d
                                           where d.task_id = t.id and not d.wall))
                        order by t.id)
          from maker m
          join standing t on t.function_id = m.function_id and t.stage = m.stage
          left join lateral (select bool_and(u.done) as done, max(u.committed_at) filter (where u.watermark is not null) as committed_at
                               from above a
                               join standing u on u.function_id = a.function_id and u.stage = a.stage
                              where a.function_id = m.function_id and a.below = m.stage) b on true) as upstream

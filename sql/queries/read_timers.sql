-- Timers that are due, of several tasks ($1) whose clocks stand at $2 (ms since the epoch, or null), at most $3 of each, and
-- when those that are not due yet will be. A row for each timer, at least one for each task; n is the task's place.
-- Of a task that is built again (it has a clock_limit) none fires that goes by the clock on the wall.
with wanted as (
    select w.n, w.task, timestamptz 'epoch' + w.clock_ms * interval '1 millisecond' as clock, w.most,
           exists (select from jeet_internal.task t where t.id = w.task and t.clock_limit is not null) as rebuilt
      from unnest($1::int[], $2::float8[], $3::int[]) with ordinality w (task, clock_ms, most, n)
), looked as materialized (
    select w.n, w.task, w.clock, w.most, w.rebuilt,
           (select min(t.at) from jeet_internal.timer t
             where t.task_id = w.task and not t.wall and t.at > coalesce(w.clock, '-infinity')) as next_event,
           (select min(t.at) from jeet_internal.timer t
             where t.task_id = w.task and t.wall and t.at > statement_timestamp() and not w.rebuilt) as next_wall
      from wanted w
)
select w.n::int, d.operator, d.key, d.name, round(extract(epoch from d.at) * 1000)::float8 as at_ms, d.wall, d.attempts,
       round(extract(epoch from w.next_event) * 1000)::float8 as next_event_ms,
       round(extract(epoch from w.next_wall) * 1000)::float8 as next_wall_ms,
       (extract(epoch from clock_timestamp()) * 1000)::float8 as now_ms
  from looked w
  left join lateral (
      select * from (
          (select t.operator, t.key, t.name, t.at, t.wall, t.attempts from jeet_internal.timer t
            where t.task_id = w.task and not t.wall and t.at <= w.clock
            order by t.at, t.operator, t.key, t.name limit w.most)
          union all
          (select t.operator, t.key, t.name, t.at, t.wall, t.attempts from jeet_internal.timer t
            where t.task_id = w.task and t.wall and t.at <= statement_timestamp() and not w.rebuilt
            order by t.at, t.operator, t.key, t.name limit w.most)) due
       order by due.at, due.operator, due.key, due.name limit w.most) d on true
 order by w.n, d.at, d.operator, d.key, d.name

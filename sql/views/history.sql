-- What each function did and how far behind it was: by minute for the last two hours, by hour before that.
create or replace view jeet.history as
with did as (
    select t.function_id, g.at, g.span_s, sum(g.events) as events, sum(g.outputs) as outputs, sum(g.errors) as errors,
           sum(g.dead_letters) as dead_letters, sum(g.cpu_s) as cpu_s
      from jeet_internal.task_figures g
      join jeet_internal.task t on t.id = g.task_id
     group by t.function_id, g.at, g.span_s
), stood as (  -- the first note of each minute, or hour, of each input
    select distinct on (p.function_id, p.stage, p.stream_id, b.span_s, b.at) p.function_id, b.at, b.span_s, p.lag
      from jeet_internal.position_sample p
     cross join lateral (select case when p.keep_until >= p.at + interval '7 days' and p.at < clock_timestamp() - interval '2 hours'
                                     then 3600 else 60 end::smallint as span_s) k
     cross join lateral (select k.span_s, date_trunc(case k.span_s when 60 then 'minute' else 'hour' end, p.at) as at) b
     where p.function_id > 0
     order by p.function_id, p.stage, p.stream_id, b.span_s, b.at, p.at
), behind as (
    select s.function_id, s.at, s.span_s, sum(s.lag) as lag from stood s group by s.function_id, s.at, s.span_s
)
select f.name as function, coalesce(d.at, b.at) as at, coalesce(d.span_s, b.span_s) * interval '1 second' as span,
       coalesce(d.events, 0)::bigint as events, coalesce(d.outputs, 0)::bigint as outputs, coalesce(d.errors, 0)::bigint as errors,
       coalesce(d.dead_letters, 0)::bigint as dead_letters, coalesce(d.cpu_s, 0) as cpu_s, b.lag::bigint as lag
  from did d
  full join behind b on b.function_id = d.function_id and b.at = d.at and b.span_s = d.span_s
  join jeet_internal.function f on f.id = coalesce(d.function_id, b.function_id);

comment on view jeet.history is 'What each function did, by minute for the last two hours and by hour for a week';
comment on column jeet.history.function is 'the function';
comment on column jeet.history.at is 'start of the minute or hour';
comment on column jeet.history.span is 'one minute or one hour';
comment on column jeet.history.events is 'events processed, over all stages';
comment on column jeet.history.outputs is 'events written, to the sink and between stages';
comment on column jeet.history.errors is 'batches that failed or were undone';
comment on column jeet.history.dead_letters is 'events set aside';
comment on column jeet.history.cpu_s is 'seconds of CPU time of its guests';
comment on column jeet.history.lag is 'events that waited at its start, over all stages; null: no coordinator noted it';

-- What each function did and how far behind it was: by minute for the last two hours, by hour before that. One sum over both
-- kinds of rows, and not a join of two sums, so that a bound on `at` and `span` is one on the rows that are read, by index.
create or replace view jeet.history as
with did as (
    select t.function_id, g.at, n.span, g.events, g.outputs, g.errors, g.dead_letters, g.cpu_s
      from (values (60::smallint, interval '1 minute'), (3600::smallint, interval '1 hour')) n (span_s, span)
      join jeet_internal.task_figures g on g.span_s = n.span_s
      join jeet_internal.task t on t.id = g.task_id
), stood as (  -- the first note of each minute, or hour, of each input
    select distinct on (p.function_id, p.stage, p.stream_id, k.span, b.at) p.function_id, b.at, k.span, p.lag
      from jeet_internal.position_sample p
     cross join lateral (select case when p.keep_until >= p.at + interval '7 days' and p.at < clock_timestamp() - interval '2 hours'
                                     then interval '1 hour' else interval '1 minute' end as span) k
     cross join lateral (select date_trunc(case k.span when interval '1 minute' then 'minute' else 'hour' end, p.at) as at) b
     where p.function_id > 0
     order by p.function_id, p.stage, p.stream_id, k.span, b.at, p.at
)
select f.name as function, h.at, h.span, h.events, h.outputs, h.errors, h.dead_letters, h.cpu_s, h.lag
  from (select x.function_id, x.at, x.span, sum(x.events)::bigint as events, sum(x.outputs)::bigint as outputs,
               sum(x.errors)::bigint as errors, sum(x.dead_letters)::bigint as dead_letters, sum(x.cpu_s) as cpu_s,
               sum(x.lag)::bigint as lag
          from (select d.function_id, d.at, d.span, d.events, d.outputs, d.errors, d.dead_letters, d.cpu_s, null::bigint as lag from did d
                union all
                select s.function_id, s.at, s.span, 0, 0, 0, 0, 0, s.lag from stood s) x
         group by x.function_id, x.at, x.span) h
  join jeet_internal.function f on f.id = h.function_id;

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

-- From an event's append to its output's, by the database clock, in milliseconds.
select count(*), percentile_cont(0.5) within group (order by ms), percentile_cont(0.99) within group (order by ms), max(ms)
  from (select extract(epoch from o.published_at - i.published_at)::float8 * 1000 as ms
          from jeet.stream_events i join jeet.stream_events o on o.value ->> 'id' = i.value ->> 'id'
         where i.stream = 'bench' and o.stream = 'bench_totals' and i.value ->> 'id' like 'paced-%%') paired;

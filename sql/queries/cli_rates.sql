-- Rates and shares by what a function reads, of all functions or of one: sums over partitions, averages of their shares.
select function, stage, stream, round(sum(arrival_per_s)::numeric, 1)::float8 as arrival_per_s,
       round(sum(processed_per_s)::numeric, 1)::float8 as processed_per_s, sum(lag)::bigint as lag, max(oldest_age) as oldest_age,
       round(case when sum(lag) = 0 then 0 when sum(processed_per_s) > sum(arrival_per_s)
                  then sum(lag) / (sum(processed_per_s) - sum(arrival_per_s)) end::numeric, 1)::float8 as drain_s,
       round(avg(batch_events)::numeric, 1)::float8 as batch_events, round(avg(share_waiting)::numeric, 3)::float8 as waiting,
       round(avg(share_sandbox)::numeric, 3)::float8 as sandbox, round(avg(share_database)::numeric, 3)::float8 as database,
       mode() within group (order by busiest_statement) as busiest
  from jeet.rates where %(function)s::text is null or function = %(function)s
 group by function, stage, stream order by function, stage, stream;

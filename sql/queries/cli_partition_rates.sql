-- Rates and shares of each task, of all functions or of one.
select function, stage, stream, partition, round(arrival_per_s::numeric, 1)::float8 as arrival_per_s,
       round(processed_per_s::numeric, 1)::float8 as processed_per_s, lag, oldest_age, round(drain_s::numeric, 1)::float8 as drain_s,
       round(batch_events::numeric, 1)::float8 as batch_events, round(share_waiting::numeric, 3)::float8 as waiting,
       round(share_sandbox::numeric, 3)::float8 as sandbox, round(share_database::numeric, 3)::float8 as database,
       busiest_statement as busiest
  from jeet.rates where %(function)s::text is null or function = %(function)s
 order by function, stage, stream, partition;

-- Which streams are past their max_lag, or, between two stages of a function, past $1: for publishers and for people. Tasks
-- do not wait for this; they judge for themselves (my_tasks.sql).
with behind as (
    select s.id, b.max_lag, jeet_internal.stream_lag(s.id) as lag
      from jeet_internal.stream s
     cross join lateral (select case when s.internal then $1::bigint else s.max_lag end as max_lag) b
     where b.max_lag is not null or s.over_lag
)
update jeet_internal.stream s
   set over_lag = coalesce(b.lag > b.max_lag, false)
  from behind b
 where b.id = s.id and s.over_lag <> coalesce(b.lag > b.max_lag, false)
returning s.name, s.over_lag, coalesce(b.lag, 0) as lag, b.max_lag

-- What functions/busiest.js must put out: by day (UTC), the ten minutes and airports with most departures. Exact as long as
-- no flight leaves more than a day behind the latest departure of those published before it (the window's delay). A day is
-- closed at the end when it ends at or before the last departure of all, which the test publishes long after the others.
with departure as (
    select value ->> 'origin' as origin,
           (value ->> 'scheduled')::timestamptz at time zone 'UTC' + (value ->> 'dep_delay')::int * interval '1 minute' as at
      from jeet.stream_events
     where stream = 'flights' and value ->> 'dep_delay' is not null),
minute as (
    select date_trunc('day', at) as day, date_trunc('minute', at) as minute, origin, count(*) as flights
      from departure
     group by 1, 2, 3),
ranked as (
    select *, row_number() over (partition by day order by flights desc, minute, origin) as place
      from minute)
select to_char(day, 'YYYY-MM-DD') as day,
       jsonb_agg(jsonb_build_object('origin', origin, 'minute', to_char(minute, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'flights', flights)
                 order by place) as minutes
  from ranked
 where place <= 10 and day + interval '1 day' <= (select max(at) from departure)
 group by day

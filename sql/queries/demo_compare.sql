-- What the log of flights says about each aircraft, against the function's state and against its last output: three
-- ways to the same figures, of which the first knows nothing of Jeet's processing. Returns what differs: nothing.
with logged as (
    select value ->> 'tailnum' as tailnum, count(*) as flights, coalesce(sum((value ->> 'air_time')::bigint), 0) as air_time,
           sum((value ->> 'distance')::bigint) as distance
      from jeet.stream_events where stream = 'flights' group by 1
), kept as (
    select key as tailnum, (value ->> 'flights')::bigint as flights, (value ->> 'air_time')::bigint as air_time,
           (value ->> 'distance')::bigint as distance
      from jeet.state where function = 'flights' and collection = 'aircraft'
), emitted as (
    select distinct on (value ->> 'tailnum') value ->> 'tailnum' as tailnum, (value ->> 'flights')::bigint as flights,
           (value ->> 'air_time')::bigint as air_time, (value ->> 'distance')::bigint as distance
      from jeet.stream_events where stream = 'aircraft_totals' order by value ->> 'tailnum', "offset" desc
)
select coalesce(l.tailnum, k.tailnum, e.tailnum) as tailnum, to_json(l) as logged, to_json(k) as state, to_json(e) as last_output
  from logged l full join kept k using (tailnum) full join emitted e using (tailnum)
 where (l.flights, l.air_time, l.distance) is distinct from (k.flights, k.air_time, k.distance)
    or (l.flights, l.air_time, l.distance) is distinct from (e.flights, e.air_time, e.distance);

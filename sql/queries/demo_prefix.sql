-- Outputs of one aircraft count its flights 1, 2, 3, … in order: each that is repeated, lost or out of order shows here.
select count(*) from (
    select (value ->> 'flights')::bigint as flights,
           row_number() over (partition by value ->> 'tailnum' order by partition, "offset") as expected
      from jeet.stream_events where stream = 'aircraft_totals') counted
 where flights <> expected;

select key as aircraft, (value ->> 'flights')::bigint as flights, round((value ->> 'air_time')::numeric / 60)::bigint as hours,
       (value ->> 'distance')::bigint as miles
  from jeet.state where function = 'flights' and collection = 'aircraft' and key <> 'unknown'
 order by miles desc, aircraft limit 8;

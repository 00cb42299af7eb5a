select key, (value ->> 'flights')::bigint, (value ->> 'air_time')::bigint, (value ->> 'distance')::bigint
  from jeet.state where function = 'flights' and collection = 'aircraft';

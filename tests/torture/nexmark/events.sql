-- The events of stream nexmark as the tables that the oracles read, made by plain SQL from what was published. Times are
-- milliseconds since the epoch. The test publishes its last events, a few of each type in every partition, all with one
-- time long after all others: they carry every watermark past what came before, and their own windows stay open. So a
-- window is closed at the end exactly when it ends at or before the highest time.
create temp table event as
select partition, "offset", value ->> 'type' as type, value::jsonb as value, (value ->> 'dateTime')::bigint as at,
       (date_part('epoch', coalesce(ts, published_at)) * 1000)::bigint as published_ms
  from jeet.stream_events where stream = 'nexmark';

create temp table person as
select (value ->> 'id')::bigint as id, value ->> 'name' as name, value ->> 'city' as city, value ->> 'state' as state, at
  from event where type = 'person';

create temp table auction as
select (value ->> 'id')::bigint as id, (value ->> 'seller')::bigint as seller, (value ->> 'category')::int as category,
       (value ->> 'expires')::bigint as expires, at
  from event where type = 'auction';

create temp table bid as
select (value ->> 'auction')::bigint as auction, (value ->> 'bidder')::bigint as bidder, (value ->> 'price')::bigint as price,
       value ->> 'extra' as extra, at, published_ms
  from event where type = 'bid';

create temp table the_end as
select max(at) as at, max(published_ms) as published_ms from event;

drop table event;
analyze person, auction, bid;

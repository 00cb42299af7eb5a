-- Bids of 1,000,000 to 50,000,000 in euros (double precision, as JavaScript counts) with the part of the day by the hour in
-- UTC. Needs no time.
select auction, bidder, euros as price,
       case when hour between 8 and 18 then 'dayTime' when hour <= 6 or hour >= 20 then 'nightTime' else 'otherTime' end as "bidTimeType",
       at as "dateTime", extra, length(extra) - length(replace(extra, 'c', '')) as c_counts
  from (select *, 0.908::float8 * price::float8 as euros, extract(hour from to_timestamp(at / 1000) at time zone 'UTC') as hour
          from bid) b
 where euros > 1000000 and euros < 50000000

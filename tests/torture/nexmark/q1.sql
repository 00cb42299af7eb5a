-- Every bid, its price times 0.908 in double precision, as JavaScript counts. Needs no time.
select auction, bidder, 0.908::float8 * price::float8 as price, at as "dateTime", extra
  from bid

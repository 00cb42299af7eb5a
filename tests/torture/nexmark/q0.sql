-- Every bid. Needs no time.
select auction, bidder, price, at as "dateTime", extra
  from bid

-- Bids in auctions with a multiple of 123 as number. Needs no time.
select auction, price
  from bid
 where auction % 123 = 0

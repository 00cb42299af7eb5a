-- For each ten seconds from a round time on: the bids with the highest price, ties included. Exact as long as no bid comes
-- more than the window's delay (5 s) behind the highest time before it: nothing is late.
select auction, bidder, price, at as "dateTime", extra
  from (select *, rank() over (partition by at / 10000 order by price desc) as place
          from bid
         where (at / 10000 + 1) * 10000 <= (select at from the_end)) b
 where place = 1

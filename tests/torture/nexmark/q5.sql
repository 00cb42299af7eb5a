-- For each window of ten seconds that starts at an even second: the auctions with the most bids in it, ties included. Exact
-- as long as no bid comes more than the window's delay (5 s) behind the highest time before it: nothing is late.
select auction, bids, start, "end"
  from (select auction, start, start + 10000 as "end", count(*) as bids,
               rank() over (partition by start order by count(*) desc) as place
          from bid
         cross join lateral generate_series(at - at % 2000 - 8000, at, 2000) start
         where start + 10000 <= (select at from the_end)
         group by auction, start) counted
 where place = 1

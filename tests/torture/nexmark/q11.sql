-- A bidder's bids between which less than ten seconds pass are one session; ten seconds or more, and another begins. It ends
-- ten seconds after its last bid. Exact as long as no bid comes more than the window's delay (5 s) behind the highest time
-- before it: nothing is late.
select bidder, count(*) as bids, min(at) as start, max(at) + 10000 as "end"
  from (select bidder, at, count(*) filter (where begins) over (partition by bidder order by at) as session
          from (select bidder, at, at - lag(at, 1, -10000::bigint) over (partition by bidder order by at) >= 10000 as begins
                  from bid) marked) numbered
 group by bidder, session
having max(at) + 10000 <= (select at from the_end)

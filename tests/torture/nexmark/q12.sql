-- Bids by bidder and ten seconds of the time of publishing: what the publisher gave as ts, else when the event was appended,
-- in whole milliseconds. Exact because times of appending never fall within a partition: nothing is late.
select bidder, count(*) as bids, published_ms / 10000 * 10000 as start, (published_ms / 10000 + 1) * 10000 as "end"
  from bid
 where (published_ms / 10000 + 1) * 10000 <= (select published_ms from the_end)
 group by bidder, published_ms / 10000

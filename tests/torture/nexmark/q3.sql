-- Auctions of category 10 with their sellers from three states, at most a day apart. Exact as long as no event comes more
-- than that day behind the watermark: it is late only then.
select p.name, p.city, p.state, a.id
  from auction a
  join person p on p.id = a.seller and abs(p.at - a.at) <= 86400000
 where a.category = 10 and p.state in ('OR', 'ID', 'CA')

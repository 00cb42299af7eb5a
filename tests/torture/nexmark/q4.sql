-- The average, by category, over auctions that had a bid while they were open, of the highest such bid. Needs no time: the
-- order of arrival changes what is emitted on the way, but not the last output of each category, which is compared.
select category, sum(final)::float8 / count(*)::float8 as average
  from (select a.category, max(b.price) as final
          from auction a
          join bid b on b.auction = a.id and b.at between a.at and a.expires
         group by a.id, a.category) closed
 group by category

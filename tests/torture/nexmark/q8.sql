-- Persons of whom an auction has a time in the same ten seconds as they have. Exact as long as neither comes more than the
-- windows' delay (5 s) behind the highest time before it: nothing is late.
select id, name, at - at % 10000 as start
  from person p
 where exists (select from auction a where a.seller = p.id and a.at / 10000 = p.at / 10000)
   and (at / 10000 + 1) * 10000 <= (select at from the_end)

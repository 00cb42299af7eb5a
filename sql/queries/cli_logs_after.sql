-- What came since, without what was shown: ids below %(floor)s are settled, those above may appear out of order.
select id, logged_at, level, version, partition, "offset", message
  from jeet.logs
 where function = %(function)s and level = any (%(levels)s::text[]) and id > %(floor)s and id <> all (%(seen)s::bigint[])
 order by id limit 1000;

-- The last lines, oldest first. Levels are compared by their place in the list that the caller gives.
select id, logged_at, level, version, partition, "offset", message
  from (select * from jeet.logs
         where function = %(function)s and level = any (%(levels)s::text[])
           and (%(since)s::timestamptz is null or logged_at >= %(since)s)
         order by id desc limit %(limit)s) newest
 order by id;

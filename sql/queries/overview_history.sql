-- Events that each function processed in each of the last minutes, oldest first; minutes in which it did nothing are 0.
select f.name as function, array_agg(coalesce(h.events, 0) order by m.at) as events
  from jeet.functions f
 cross join lateral (select date_trunc('minute', statement_timestamp()) as ends) now
 cross join generate_series(now.ends - make_interval(mins => %(minutes)s), now.ends - interval '1 minute', interval '1 minute') m(at)
  left join (select h.function, h.at, h.events
               from jeet.history h
              -- A bound of its own: the one by m is of no use to an index.
              where h.span = interval '1 minute' and h.at >= date_trunc('minute', statement_timestamp()) - make_interval(mins => %(minutes)s)) h
         on h.function = f.name and h.at = m.at
 group by f.name

-- Events that each function processed in each of the last minutes, oldest first; minutes in which it did nothing are 0.
select f.name as function, array_agg(coalesce(h.events, 0) order by m.at) as events
  from jeet.functions f
 cross join generate_series(date_trunc('minute', clock_timestamp()) - make_interval(mins => %(minutes)s),
                            date_trunc('minute', clock_timestamp()) - interval '1 minute', interval '1 minute') m(at)
  left join jeet.history h on h.function = f.name and h.at = m.at and h.span = interval '1 minute'
 group by f.name

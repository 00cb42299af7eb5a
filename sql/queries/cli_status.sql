select f.name as function, f.version, f.status, f.source, f.sink, coalesce(l.tasks, 0) as tasks, coalesce(l.owned, 0) as owned,
       coalesce(l.lag, 0) as lag, l.oldest_age, d.open as dead_letters
  from jeet.functions f
  left join lateral (select count(*) as tasks, count(l.worker) as owned, sum(l.lag)::bigint as lag, max(l.oldest_age) as oldest_age
                       from jeet.lag l where l.function = f.name) l on true
  cross join lateral (select count(*) as open from jeet.dead_letters d where d.function = f.name and d.status = 'open') d
 order by f.name;

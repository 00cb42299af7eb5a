-- Each function with its rates: what comes from outside of it, what all its stages still have to do.
select f.name as function, f.version, f.status, f.under_way, f.source, f.sink, coalesce(l.tasks, 0) as tasks, coalesce(l.owned, 0) as owned,
       r.arrival_per_s, r.processed_per_s, coalesce(l.lag, 0) as lag, l.oldest_age, r.drain_s, r.share_sandbox, r.share_database,
       d.open as dead_letters
  from jeet.functions f
  left join lateral (select count(*) as tasks, count(l.worker) as owned, sum(l.lag)::bigint as lag, max(l.oldest_age) as oldest_age
                       from jeet.lag l where l.function = f.name) l on true
  left join lateral (select sum(r.arrival_per_s) filter (where not i.internal) as arrival_per_s,
                            sum(r.processed_per_s) filter (where not i.internal) as processed_per_s,
                            case when count(r.drain_s) = count(*) then max(r.drain_s) end as drain_s,
                            avg(r.share_sandbox) as share_sandbox, avg(r.share_database) as share_database
                       from jeet.rates r
                      cross join lateral (select exists (select from jeet.internal_streams s where s.name = r.stream) as internal) i
                      where r.function = f.name) r on true
  cross join lateral (select count(*) as open from jeet.dead_letters d where d.function = f.name and d.status = 'open') d
 order by f.status = 'failed' desc, coalesce(l.lag, 0) desc, f.name

-- State without a TTL grows, and went on growing in the later half of the time that is looked at.
create or replace view jeet_internal.rule_state_growth as
select format('state grows without bound: %s of %s', c.name, f.name) as observation,
       'no TTL' as likely_cause,
       format('%s entries, %s MB%s; %s more an hour', l.rows, round(l.bytes / 1e6, 1), case when l.error > 0 then format(' (± %s %%)', round((l.error * 200)::numeric)) end,
              round((l.rows - b.rows) / h.hours)) as evidence,
       format('set state TTL: config.state = { %s: { ttl: ''7d'' } } in the function, then deploy it: jeet deploy FILE; what is in it: jeet state %s %s', c.name, f.name, c.name) as action,
       b.at as since,
       jsonb_build_object('function', f.name, 'collection', c.name, 'rows', l.rows, 'bytes', l.bytes, 'rows_per_hour', round((l.rows - b.rows) / h.hours)) as figures
  from jeet_internal.collection c
  join jeet_internal.function f on f.id = c.function_id
 cross join lateral (select s.* from jeet_internal.state_size s
                      where s.function_id = c.function_id and s.collection_id = c.id order by s.at desc limit 1) l
 cross join lateral (select s.* from jeet_internal.state_size s
                      where s.function_id = c.function_id and s.collection_id = c.id and s.at <= l.at - jeet_internal.threshold_span('growth_s')
                      order by s.at desc limit 1) b
 cross join lateral (select s.* from jeet_internal.state_size s
                      where s.function_id = c.function_id and s.collection_id = c.id and s.at <= l.at - jeet_internal.threshold_span('growth_s') / 2
                      order by s.at desc limit 1) m
 cross join lateral (select extract(epoch from l.at - b.at)::numeric / 3600 as hours) h
 where c.ttl is null and l.rows >= jeet_internal.threshold('growth_rows')
   and l.rows - b.rows >= jeet_internal.threshold('growth_share') * l.rows
   and l.rows - m.rows >= jeet_internal.threshold('growth_share') / 4 * l.rows;

-- State without a TTL grows, and went on growing in the later half of the time that is looked at. What a window or a join of
-- two streams keeps goes with event time: a TTL would take values out of open windows.
create or replace view jeet_internal.rule_state_growth as
select format('state grows without bound: %s of %s', c.name, f.name) as observation,
       case o.op when 'window' then 'event time stands still, or windows are large or stay open for long (grace, delay)'
                 when 'join' then 'event time stands still, or the join waits for long (within, delay)'
                 else 'no TTL' end as likely_cause,
       format('%s entries, %s MB%s; %s more an hour', l.rows, round(l.bytes / 1e6, 1), case when l.error > 0 then format(' (± %s %%)', round((l.error * 200)::numeric)) end,
              round((l.rows - b.rows) / h.hours)) as evidence,
       format(case o.op when 'window' then 'look where event time stands: jeet lag %2$s --watermarks; if it goes on, use smaller windows, grace or delay; what is in it: jeet state %2$s %1$s'
                        when 'join' then 'look where event time stands: jeet lag %2$s --watermarks; if it goes on, use a smaller within or delay; what is in it: jeet state %2$s %1$s'
                        else 'set state TTL: config.state = { %1$s: { ttl: ''7d'' } } in the function, then deploy it: jeet deploy FILE; what is in it: jeet state %2$s %1$s' end,
              c.name, f.name) as action,
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
  left join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
  left join lateral (select n.value ->> 'op' as op from jsonb_array_elements(v.graph) n
                      where n.value ->> 'op' in ('window', 'join') and (n.value ->> 'collection' = c.name or n.value -> 'collections' ? c.name)) o on true
 where c.ttl is null and l.rows >= jeet_internal.threshold('growth_rows')
   and l.rows - b.rows >= jeet_internal.threshold('growth_share') * l.rows
   and l.rows - m.rows >= jeet_internal.threshold('growth_share') / 4 * l.rows;

-- A table is mostly old versions of rows, and was not vacuumed lately, though nothing holds vacuum back.
create or replace view jeet_internal.rule_vacuum_behind as
select format('table %s is mostly old versions of rows', h.name) as observation,
       'autovacuum is off, or too slow for what is written' as likely_cause,
       format('%s rows, %s old versions, %s MB; last vacuum %s', h.live_rows, h.dead_rows, round(h.bytes / 1e6), coalesce(date_trunc('second', h.last_vacuum)::text, 'never')) as evidence,
       format('vacuum it: vacuum (analyze) jeet_internal.%I; and see autovacuum, autovacuum_max_workers, autovacuum_vacuum_cost_limit', h.name) as action,
       h.last_vacuum as since,
       jsonb_build_object('table', h.name, 'live_rows', h.live_rows, 'dead_rows', h.dead_rows) as figures
  from jeet.table_health h
 where h.dead_rows >= jeet_internal.threshold('dead_rows') and h.dead_rows > 2 * h.live_rows
   and (h.last_vacuum is null or h.last_vacuum < clock_timestamp() - interval '10 minutes')
   and not exists (select from jeet_internal.rule_long_transaction)
   and not exists (select from jeet_internal.rule_lock_held);

-- Rows that were never frozen grow old: Postgres stops taking writes at an age of 2,000,000,000 transactions.
create or replace view jeet_internal.rule_old_rows as
select format('the oldest row of this database is %s transactions old', age(d.datfrozenxid)) as observation,
       'vacuum cannot keep up, or something holds it back: an open transaction, a replication slot' as likely_cause,
       format('age(datfrozenxid) = %s; autovacuum_freeze_max_age = %s', age(d.datfrozenxid), current_setting('autovacuum_freeze_max_age')) as evidence,
       'end what holds it back, then run: vacuum (freeze, verbose)' as action,
       null::timestamptz as since, jsonb_build_object('age', age(d.datfrozenxid)) as figures
  from pg_database d
 where d.datname = current_database() and age(d.datfrozenxid) > jeet_internal.threshold('frozen_xids');

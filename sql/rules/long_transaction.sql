-- A transaction stays open: Postgres keeps all rows that it might still see, and the small busy tables grow. Prepared
-- transactions and replication slots that nobody reads do the same.
create or replace view jeet_internal.rule_long_transaction as
select format('a transaction has been open for %s', date_trunc('second', clock_timestamp() - l.xact_start)) as observation,
       'a client that does not commit; it keeps Postgres from removing old rows, and its locks may make others wait' as likely_cause,
       format('pid %s, user %s, application %s, %s', l.pid, l.usename, coalesce(nullif(l.application_name, ''), '(none)'), l.state) as evidence,
       format('end it if it is forgotten: select pg_terminate_backend(%s)', l.pid) as action,
       l.xact_start as since,
       jsonb_build_object('pid', l.pid, 'user', l.usename, 'application', l.application_name, 'state', l.state) as figures
  from jeet_internal.long_transactions(jeet_internal.threshold_span('transaction_s')) l
 where l.pid not in (select (h.figures ->> 'pid')::int from jeet_internal.rule_lock_held h)
union all
select format('a prepared transaction has been open for %s', date_trunc('second', clock_timestamp() - p.prepared)),
       'a transaction manager that neither commits nor rolls back; it keeps Postgres from removing old rows, and holds locks',
       format('%s, owner %s', quote_literal(p.gid), p.owner), format('end it: rollback prepared %s', quote_literal(p.gid)),
       p.prepared, jsonb_build_object('gid', p.gid, 'owner', p.owner)
  from pg_prepared_xacts p
 where p.database = current_database() and p.prepared < clock_timestamp() - jeet_internal.threshold_span('transaction_s')
union all
select format('replication slot %s holds back %s of log', s.slot_name, pg_size_pretty(b.bytes)),
       'a replica or a reader of changes that went away and left its slot behind; it keeps log and old rows',
       format('nobody reads it; kept: %s', pg_size_pretty(b.bytes)),
       format('if it is forgotten: select pg_drop_replication_slot(%s)', quote_literal(s.slot_name)),
       null, jsonb_build_object('slot', s.slot_name, 'bytes', b.bytes)
  from pg_replication_slots s
 cross join lateral (select case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) end as bytes) b
 where not s.active and b.bytes > jeet_internal.threshold('slot_bytes');

create or replace view jeet.database_health as
select o.pid as oldest_pid, o.usename as oldest_user, o.application_name as oldest_application, o.state as oldest_state,
       clock_timestamp() - o.xact_start as oldest_age, pg_notification_queue_usage() as notification_queue,
       (select count(*) from pg_stat_activity a where a.datname = current_database() and a.backend_type = 'client backend') as connections,
       current_setting('max_connections')::int as max_connections,
       (select age(d.datfrozenxid) from pg_database d where d.datname = current_database()) as transaction_ids_used
  from (select 1) as once
  left join lateral (select l.* from jeet_internal.long_transactions(interval '0') l order by l.xact_start limit 1) o on true;

comment on view jeet.database_health is 'What holds the database up: one row';
comment on column jeet.database_health.oldest_pid is 'the session whose transaction has been open for longest; null: none is open';
comment on column jeet.database_health.oldest_user is 'its user';
comment on column jeet.database_health.oldest_application is 'its application_name';
comment on column jeet.database_health.oldest_state is 'what it is at: active, idle in transaction, …';
comment on column jeet.database_health.oldest_age is 'for how long its transaction has been open';
comment on column jeet.database_health.notification_queue is 'share of the notification queue in use, from 0 to 1; when it is full, commits fail';
comment on column jeet.database_health.connections is 'sessions in this database';
comment on column jeet.database_health.max_connections is 'how many the server allows in all';
comment on column jeet.database_health.transaction_ids_used is 'transactions since the oldest that is not frozen; autovacuum keeps it below some 200 million, at 2 billion the server stops';

-- The queue of notifications fills up: when it is full, commits that notify fail.
create or replace view jeet_internal.rule_notify_queue as
select format('%s %% of the queue of notifications is in use', round((u.share * 100)::numeric)) as observation,
       'a session that listens sits in an open transaction' as likely_cause,
       format('pg_notification_queue_usage() = %s', round(u.share::numeric, 3)) as evidence,
       'end the oldest transaction; who it is: select pid, xact_start from pg_stat_activity order by xact_start' as action,
       null::timestamptz as since, jsonb_build_object('share', u.share) as figures
  from (select pg_notification_queue_usage() as share) u
 where u.share > jeet_internal.threshold('notify_share');

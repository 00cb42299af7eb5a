-- Postgres has hardly a connection left.
create or replace view jeet_internal.rule_connections as
select format('%s of %s connections are in use', u.used, u.allowed) as observation,
       'more processes than Postgres is set up for; a worker needs up to three a lane and six more' as likely_cause,
       format('of Jeet: %s; of others: %s', u.ours, u.used - u.ours) as evidence,
       'raise max_connections, run fewer lanes (JEET_LANES), or end clients that are idle' as action,
       null::timestamptz as since, jsonb_build_object('used', u.used, 'allowed', u.allowed, 'jeet', u.ours) as figures
  from (select count(*) as used, count(*) filter (where application_name like 'jeet%') as ours,
               current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as allowed
          from pg_stat_activity where backend_type = 'client backend') u
 where u.used > u.allowed * jeet_internal.threshold('connections_share');

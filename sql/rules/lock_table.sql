-- The lock table is too small for what is deployed: a lock for each task, and for each worker's session one for each segment
-- of the log and its index. When it is full, statements fail with `out of shared memory`.
create or replace view jeet_internal.rule_lock_table as
select format('max_locks_per_transaction = %s is low for what is deployed', n.setting) as observation,
       'Postgres is set up as it comes; leases take a lock for each task, statements one for each segment of the log' as likely_cause,
       format('%s tasks, %s segments, %s sessions of workers may need %s locks; there is room for %s', n.tasks, n.segments, n.sessions, n.need, n.room) as evidence,
       'set it, and restart Postgres: alter system set max_locks_per_transaction = 512' as action,
       null::timestamptz as since,
       jsonb_build_object('setting', n.setting, 'tasks', n.tasks, 'segments', n.segments, 'need', n.need, 'room', n.room) as figures
  from (select c.setting, c.setting * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) as room,
               t.tasks, s.segments, a.sessions, t.tasks + 2 * s.segments * a.sessions as need
          from (select current_setting('max_locks_per_transaction')::int as setting) c,
               (select count(*) as tasks from jeet_internal.task) t,
               (select count(*) as segments from pg_class where relnamespace = 'jeet_internal'::regnamespace and relispartition and relkind = 'r') s,
               (select count(*) as sessions from pg_stat_activity
                 where datname = current_database() and application_name similar to 'jeet-worker (fetch|commit)%') a) n
 where n.need > n.room * jeet_internal.threshold('locks_share');

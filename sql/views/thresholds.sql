-- From where on the rules of jeet.diagnosis speak. Each can be set for a session, a login or a database, as
-- `alter database shop set jeet.skew_share = 0.8`; what is no number is taken for unset.
create or replace view jeet.thresholds as
select t.name, case when pg_input_is_valid(s.text, 'float8') then s.text::float8 else t.preset end as value, t.preset, t.unit, t.meaning
  from (values
    ('silent_s', 5::float8, 's', 'a worker whose last heartbeat is older is silent'),
    ('leader_silent_s', 10, 's', 'a coordinator whose last heartbeat is older leads no more'),
    ('unowned_s', 5, 's', 'a task that nobody runs for longer is told'),
    ('lost_s', 300, 's', 'so long the loss of a worker is told once others have its tasks'),
    ('timeouts', 1, 'times', 'how often a process that lives was taken for lost, within lost_s'),
    ('stuck_s', 30, 's', 'a task that has events waiting and commits nothing for longer is stuck'),
    ('retry_s', 5, 's', 'an event that holds up its partition for longer while it is tried again is told'),
    ('watermark_s', 120, 's', 'event time that stands still for longer while events are processed has stalled'),
    ('ahead_s', 86400, 's', 'a watermark that is further ahead of the clock comes of an event with a wrong time'),
    ('skew_per_s', 50, 'events/s', 'of a stream with fewer nothing is said about skew'),
    ('skew_share', 0.6, 'share', 'of a stream''s load that one partition may carry; half more than a fair share if that is higher'),
    ('hot_share', 0.3, 'share', 'of a partition''s events, from which on its key is named'),
    ('growth_s', 3600, 's', 'over so long growth of state is looked at'),
    ('growth_rows', 10000, 'entries', 'of a collection with fewer nothing is said about growth'),
    ('growth_share', 0.05, 'share', 'of its entries that came within growth_s, and a quarter of that in the later half'),
    ('behind_events', 1000, 'events', 'a function that is less behind keeps up'),
    ('behind_s', 30, 's', 'a function whose oldest waiting event is younger keeps up'),
    ('busy_share', 0.8, 'share', 'of the time of lanes, or of tasks, from which on they are busy'),
    ('lock_s', 10, 's', 'a client that holds locks on tables of Jeet in one transaction for longer is in the way'),
    ('transaction_s', 60, 's', 'a transaction that is open for longer is told'),
    ('dead_rows', 100000, 'rows', 'a table with fewer old versions of rows is in order'),
    ('slot_bytes', 1073741824, 'bytes', 'what a replication slot that nobody reads may hold back'),
    ('frozen_xids', 1000000000, 'transactions', 'the age of the oldest row; at 2,000,000,000 Postgres stops'),
    ('notify_share', 0.5, 'share', 'of the queue of notifications that is in use'),
    ('connections_share', 0.9, 'share', 'of the connections that Postgres allows'),
    ('locks_share', 0.5, 'share', 'of the lock table that the tasks and the log may need'),
    ('clock_s', 2, 's', 'how far clocks may be apart'),
    ('late_s', 180, 's', 'a maintenance job that is overdue for longer is late'),
    ('mixed_s', 600, 's', 'workers may differ for so long, as while they are replaced one by one')
  ) t(name, preset, unit, meaning)
 cross join lateral (select nullif(current_setting('jeet.' || t.name, true), '') as text) s;

comment on view jeet.thresholds is 'From where on the rules of jeet.diagnosis speak, as set for this session';
comment on column jeet.thresholds.name is 'set it with: set jeet.NAME = …, or alter database … set jeet.NAME = …';
comment on column jeet.thresholds.value is 'what holds in this session';
comment on column jeet.thresholds.preset is 'what holds where nothing is set';
comment on column jeet.thresholds.unit is 'its unit';
comment on column jeet.thresholds.meaning is 'what it is for';

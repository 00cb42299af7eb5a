create or replace view jeet.coordinators as
select l.host, l.pid, l.since, clock_timestamp() - l.heartbeat_at as heartbeat_age
  from jeet_internal.leader l;

comment on view jeet.coordinators is 'The coordinator that leads, or led last; those that stand by are not listed';
comment on column jeet.coordinators.host is 'the machine or container it runs on';
comment on column jeet.coordinators.pid is 'its process there';
comment on column jeet.coordinators.since is 'since when it leads';
comment on column jeet.coordinators.heartbeat_age is 'how long ago it last said that it lives';

create or replace view jeet.workers as
select w.id, w.host, w.pid, w.version, w.started_at, clock_timestamp() - w.heartbeat_at as heartbeat_age,
       (select count(*) from jeet_internal.task t where t.worker_id = w.id) as tasks, w.status
  from jeet_internal.worker w;

comment on view jeet.workers is 'Worker processes; one that ended in good order is not listed';
comment on column jeet.workers.id is 'number of this incarnation of the worker';
comment on column jeet.workers.host is 'the machine or container it runs on';
comment on column jeet.workers.pid is 'its process there';
comment on column jeet.workers.version is 'its version of Jeet';
comment on column jeet.workers.started_at is 'when it joined';
comment on column jeet.workers.heartbeat_age is 'how long ago it last said that it lives';
comment on column jeet.workers.tasks is 'how many tasks it holds';
comment on column jeet.workers.status is 'running, draining (stopping in order) or lost (its tasks were given to others)';

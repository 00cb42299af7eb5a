create or replace view jeet.workers as
select w.id, w.host, w.pid, w.version, w.started_at, clock_timestamp() - w.heartbeat_at as heartbeat_age,
       (select count(*) from jeet_internal.task t where t.worker_id = w.id) as tasks, w.status, w.plugin_hash, f.memory_bytes,
       f.guest_bytes, f.lanes, f.busy, f.clock_offset_ms, f.clock_error_ms, f.python, f.wasmtime, clock_timestamp() - f.at as figures_age
  from jeet_internal.worker w
  left join jeet_internal.worker_figures f on f.worker_id = w.id;

comment on view jeet.workers is 'Worker processes; one that ended in good order is not listed';
comment on column jeet.workers.id is 'number of this incarnation of the worker';
comment on column jeet.workers.host is 'the machine or container it runs on';
comment on column jeet.workers.pid is 'its process there';
comment on column jeet.workers.version is 'its version of Jeet';
comment on column jeet.workers.started_at is 'when it joined';
comment on column jeet.workers.heartbeat_age is 'how long ago it last said that it lives';
comment on column jeet.workers.tasks is 'how many tasks it holds';
comment on column jeet.workers.status is 'running, draining (stopping in order) or lost (taken for dead: its tasks go to others)';
comment on column jeet.workers.plugin_hash is 'SHA-256 of its Javy plugin';
comment on column jeet.workers.memory_bytes is 'resident memory of the process; like what follows as it last said, each five seconds or so, and null until then';
comment on column jeet.workers.guest_bytes is 'memory of its guests, bounded by JEET_WORKER_MEMORY_MB';
comment on column jeet.workers.lanes is 'how many guests it can run at once';
comment on column jeet.workers.busy is 'share of its lanes'' time in which they had something to do, from 0 to 1';
comment on column jeet.workers.clock_offset_ms is 'its clock less the database''s, in milliseconds';
comment on column jeet.workers.clock_error_ms is 'how far off that may be, as the question took its time';
comment on column jeet.workers.python is 'version of Python';
comment on column jeet.workers.wasmtime is 'version of wasmtime';
comment on column jeet.workers.figures_age is 'how long ago it said so';

create or replace view jeet.lease_changes as
select f.name as function, t.stage, t.partition, l.from_worker, l.to_worker, l.reason, l.elapsed_ms, l.at
  from jeet_internal.lease_change l
  join jeet_internal.task t on t.id = l.task_id
  join jeet_internal.function f on f.id = t.function_id;

comment on view jeet.lease_changes is 'Who took which task from whom, over a week';
comment on column jeet.lease_changes.function is 'the function';
comment on column jeet.lease_changes.stage is 'the stage of its graph, from 0';
comment on column jeet.lease_changes.partition is 'the partition';
comment on column jeet.lease_changes.from_worker is 'the worker that had it before; null: nobody had';
comment on column jeet.lease_changes.to_worker is 'the worker that took it';
comment on column jeet.lease_changes.reason is 'deployed (it is new), released (given back in order), lost (its worker died or froze), restarted (its worker joined anew) or changed (its own worker took it anew: a deploy, a reset, a commit in doubt)';
comment on column jeet.lease_changes.elapsed_ms is 'milliseconds in which nobody ran it, from the last heartbeat of a worker that was lost; null: unknown';
comment on column jeet.lease_changes.at is 'when it was taken';

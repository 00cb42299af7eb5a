create or replace view jeet.savepoints as
select f.name as function, p.id, p.version, p.taken_at, p.why, p.automatic, s.positions, p.entries, p.timers, p.events, p.letters, p.bytes
  from jeet_internal.savepoint p
  join jeet_internal.function f on f.id = p.function_id
 cross join lateral (
       select jsonb_object_agg(by_stream.stream, by_stream.offsets) as positions
         from (select c.stream, jsonb_agg(c.next_offset order by t.partition) as offsets
                 from (select distinct on (c.stream, t.partition) c.*
                         from jeet_internal.savepoint_checkpoint c
                         join jeet_internal.savepoint_task t on t.savepoint_id = c.savepoint_id and t.task_id = c.task_id
                        where c.savepoint_id = p.id and not c.internal
                        order by c.stream, t.partition, t.stage) c
                 join jeet_internal.savepoint_task t on t.savepoint_id = c.savepoint_id and t.task_id = c.task_id
                group by c.stream) by_stream) s
 where not p.dropped;

comment on view jeet.savepoints is 'Savepoints of functions: what jeet restore can go back to';
comment on column jeet.savepoints.function is 'the function';
comment on column jeet.savepoints.id is 'the number to restore it by';
comment on column jeet.savepoints.version is 'the version that ran';
comment on column jeet.savepoints.taken_at is 'when';
comment on column jeet.savepoints.why is 'what for';
comment on column jeet.savepoints.automatic is 'taken before a change of the function: only the newest of these are kept';
comment on column jeet.savepoints.positions is 'for each stream that the function reads, the next offset of each partition';
comment on column jeet.savepoints.entries is 'entries of state in it';
comment on column jeet.savepoints.timers is 'timers in it';
comment on column jeet.savepoints.events is 'events in it that were under way between stages';
comment on column jeet.savepoints.letters is 'dead letters in it that were open';
comment on column jeet.savepoints.bytes is 'how much it holds, as it was stored';

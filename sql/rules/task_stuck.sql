-- A worker that lives holds a task with events waiting, and nothing of it is committed; no other rule tells why.
create or replace view jeet_internal.rule_task_stuck as
select format('partition %s of %s does not move, though worker %s holds it', l.partition, l.function, l.worker) as observation,
       'one call of the function runs long, its instance cannot be made, or its events cannot be read' as likely_cause,
       format('at offset %s of %s; last commit %s, %s events wait, the oldest for %s', l.next_offset, l.stream,
              coalesce(date_trunc('second', t.committed_at)::text, 'never'), l.lag, date_trunc('second', l.oldest_age)) as evidence,
       format('look at the log of worker %s (%s, pid %s); if it says nothing, end it, and others take over: kill %s', w.id, w.host, w.pid, w.pid) as action,
       greatest(t.committed_at, t.acquired_at) as since,
       jsonb_build_object('function', l.function, 'stage', l.stage, 'partition', l.partition, 'stream', l.stream, 'offset', l.next_offset,
                          'lag', l.lag, 'worker', w.id, 'pid', w.pid) as figures
  from jeet.lag l
  join jeet_internal.function f on f.name = l.function
  join jeet_internal.task t on t.function_id = f.id and t.stage = l.stage and t.partition = l.partition
  join jeet_internal.worker w on w.id = t.worker_id
  join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = t.stage
 where f.status = 'running' and not f.draining and t.status = 'running' and l.lag > 0
   and l.oldest_age > jeet_internal.threshold_span('stuck_s')
   and greatest(t.committed_at, t.acquired_at) < clock_timestamp() - jeet_internal.threshold_span('stuck_s')
   and w.status <> 'lost' and w.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('silent_s')
   and not exists (select from jeet_internal.suspect s where s.task_id = t.id and s."offset" >= l.next_offset)
   -- It waits for what comes after it, as it should.
   and not exists (select from jeet_internal.stream o where o.id = any (g.outputs) and o.over_lag and not o.in_cycle)
   -- It waits for a change that takes long, or for its place in a rebuild.
   and not jeet_internal.is_at_rest(f.id)
   and not exists (select from jeet_internal.rebuild r where r.function_id = f.id)
   and not exists (select from jeet_internal.rule_lock_held);

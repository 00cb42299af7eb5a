-- What is wrong now, as far as the schema and the server know it. A row is a fact that was just looked up, with its
-- evidence; an empty view means that none of these rules found anything, not that all is well.
create or replace view jeet.diagnosis as
with worker as (
    select count(*) filter (where w.status = 'running' and w.heartbeat_at > clock_timestamp() - interval '5 seconds') as alive,
           max(w.heartbeat_at) as last_seen
      from jeet_internal.worker w
), waiting as (  -- tasks that should run and that nobody runs
    select f.name, count(*) as tasks, min(t.unowned_since) as since
      from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
     where f.status = 'running' and t.status = 'running' and t.worker_id is null
       and t.unowned_since < clock_timestamp() - interval '5 seconds'
     group by f.name
)
select (select format(case count(*) when 1 then 'no worker is running, 1 task waits' else 'no worker is running, %s tasks wait' end, count(*))
          from jeet_internal.task t
              join jeet_internal.function f on f.id = t.function_id where f.status = 'running' and t.status = 'running') as observation,
       'worker processes ended, or were never started, or cannot reach the database' as likely_cause,
       case when w.last_seen is null then 'no worker is known'
            else format('last heartbeat of any worker: %s', date_trunc('second', w.last_seen)) end as evidence,
       'start workers: jeet worker (jeet up starts them itself)' as action,
       w.last_seen as since
  from worker w
 where w.alive = 0 and exists (select from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
                                where f.status = 'running' and t.status = 'running')
union all
select 'no coordinator leads', 'no coordinator process is running, or none can reach the database',
       coalesce((select format('last heartbeat of a leader: %s (%s, pid %s)', date_trunc('second', l.heartbeat_at), l.host, l.pid)
                   from jeet_internal.leader l), 'no coordinator ever led this database'),
       'start one: jeet coordinator; running tasks go on meanwhile, but lost workers are not replaced',
       (select l.heartbeat_at from jeet_internal.leader l)
 where exists (select from jeet_internal.function)
   and not exists (select from jeet_internal.leader l where l.heartbeat_at > clock_timestamp() - interval '10 seconds')
union all
select format(case g.tasks when 1 then '%s task of %s has no owner' else '%s tasks of %s have no owner' end, g.tasks, g.name), 'workers are alive but do not take them, or the coordinator does not assign them',
       format('longest without owner since %s', date_trunc('second', g.since)), 'look at the coordinator''s log', g.since
  from waiting g, worker w
 where w.alive > 0
union all
select format('partition %s of %s is halted', t.partition, f.name), 'an event failed and the function says onError: halt, or events were lost to retention',
       coalesce(t.halt_reason, 'no reason was recorded'), format('mend the function and deploy it; where the cause is gone, let it try again: jeet resume %s', f.name), t.committed_at
  from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
 where t.status = 'halted'
union all
select format('%s drains', f.name), 'another version with other stages is to take over; if no jeet deploy is at it now, it was cut short',
       'its sources are not read meanwhile', format('run that jeet deploy --drain again, or call it off: jeet resume %s', f.name), null
  from jeet_internal.function f
 where f.draining
union all
select format('stream %s refuses publishers', s.name), 'a consumer is further behind than the stream''s max_lag',
       format('max_lag is %s events; furthest behind: %s', s.max_lag, coalesce((
           select format('%s, partition %s, %s events', f.name, t.partition, h.head - c.next_offset)
             from jeet_internal.checkpoint c join jeet_internal.task t on t.id = c.task_id
             join jeet_internal.function f on f.id = t.function_id
             join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
            where c.stream_id = s.id order by h.head - c.next_offset desc limit 1), 'no consumer')),
       'add workers: jeet worker; which function is behind: jeet lag', null
  from jeet_internal.stream s
 where s.over_lag
union all
select format('worker %s on %s was lost', w.id, w.host), 'its process was killed, froze, or lost the database',
       format('last heartbeat %s, pid %s', date_trunc('second', w.heartbeat_at), w.pid), 'look at its log; its tasks were given to others', w.heartbeat_at
  from jeet_internal.worker w
   -- Once others run what it ran, this is history; it is told for some minutes still, as its log may be worth a look.
 where w.status = 'lost' and (w.heartbeat_at > clock_timestamp() - interval '5 minutes'
       or exists (select from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
                   where t.worker_id = w.id and t.status = 'running' and f.status = 'running'))
union all
select format('worker %s on %s is silent', w.id, w.host), 'its process is frozen, or it cannot reach the database',
       format('last heartbeat %s, pid %s', date_trunc('second', w.heartbeat_at), w.pid), 'a coordinator takes its tasks away; if none runs, start one', w.heartbeat_at
  from jeet_internal.worker w
 where w.status <> 'lost' and w.heartbeat_at < clock_timestamp() - interval '5 seconds'
union all
select format('%s open dead letter%s of %s', count(*), case when count(*) > 1 then 's' end, f.name), 'events that the function could not process',
       format('latest: %s', (array_agg(left(d.error, 200) order by d.failed_at desc))[1]),
       format('look at them: jeet dlq list %s; when mended: jeet dlq redrive %s --all', f.name, f.name), min(d.failed_at)
  from jeet_internal.dead_letter d join jeet_internal.task t on t.id = d.task_id join jeet_internal.function f on f.id = t.function_id
 where d.status = 'open'
 group by f.name
union all
select format('a transaction has been open for %s', date_trunc('second', clock_timestamp() - l.xact_start)),
       'a client that does not commit; it keeps Postgres from removing old rows, and its locks may make others wait',
       format('pid %s, user %s, application %s, %s', l.pid, l.usename, coalesce(nullif(l.application_name, ''), '(none)'), l.state),
       format('end it if it is forgotten: select pg_terminate_backend(%s)', l.pid), l.xact_start
  from jeet_internal.long_transactions(interval '1 minute') l;

comment on view jeet.diagnosis is 'What is wrong now, with cause, evidence and remedy; empty when no rule found anything. Sessions of other users are seen only as far as the owner of the schema may see them';
comment on column jeet.diagnosis.observation is 'what was found';
comment on column jeet.diagnosis.likely_cause is 'why that usually happens';
comment on column jeet.diagnosis.evidence is 'the figures it rests on';
comment on column jeet.diagnosis.action is 'what to do';
comment on column jeet.diagnosis.since is 'since when, if that is known';

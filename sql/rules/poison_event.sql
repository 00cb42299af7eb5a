-- An event fails, or ends the process, and is tried again, and its partition waits for it.
create or replace view jeet_internal.rule_poison_event as
select format('an event holds up partition %s of %s: it fails and is tried again', t.partition, f.name) as observation,
       case when s.attempts > 0 then 'the function ends the worker process on it' else 'the function throws on it, and says onError: retry' end as likely_cause,
       format('partition %s of %s, offset %s%s; tried for %s, %s wait%s behind it', t.partition, i.name, s."offset",
              case when s.attempts > 0 then format(', ended %s worker processes', s.attempts) end,
              date_trunc('second', clock_timestamp() - greatest(t.committed_at, p.at)), jeet_internal.counted(h.head - s.next_offset - 1, 'event'), case when h.head - s.next_offset = 2 then 's' end) as evidence,
       format('read it: jeet tail %s --partition=%s --start=%s --limit=1; what the function wrote: jeet logs %s; mend the function and deploy it', i.name, t.partition, s."offset", f.name) as action,
       greatest(t.committed_at, p.at) as since,
       jsonb_build_object('function', f.name, 'stage', t.stage, 'partition', t.partition, 'stream', i.name, 'offset', s."offset",
                          'crashes', s.attempts, 'waiting', h.head - s.next_offset - 1) as figures
  from (select distinct on (u.task_id) u.*, c.next_offset
          from jeet_internal.suspect u
          join jeet_internal.checkpoint c on c.task_id = u.task_id and c.stream_id = u.stream_id
         where (u.begun or u.attempts > 0) and u."offset" >= c.next_offset
         order by u.task_id, u.attempts desc, u."offset") s
  join jeet_internal.task t on t.id = s.task_id
  join jeet_internal.function f on f.id = t.function_id
  join jeet_internal.stream i on i.id = s.stream_id
  join jeet_internal.head h on h.stream_id = i.id and h.partition = t.partition
 cross join lateral (select jeet_internal.published_at(i.id, t.partition, s."offset") as at) p
 where f.status = 'running' and t.status = 'running' and h.head > s.next_offset
   and greatest(t.committed_at, p.at) < clock_timestamp() - jeet_internal.threshold_span('retry_s');

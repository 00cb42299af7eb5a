-- A stream is past its max_lag and takes no more events; not told (findings.sql) where too_few_workers tells it of the function
-- that is behind.
create or replace view jeet_internal.rule_publishers_refused as
select format('stream %s refuses publishers', s.name) as observation,
       case when b.why = 'slow' then 'a consumer is further behind than the stream''s max_lag'
            else format('%s %s, and is further behind than the stream''s max_lag', b.function, b.why) end as likely_cause,
       format('max_lag is %s; furthest behind: %s', jeet_internal.counted(s.max_lag, 'event'),
              coalesce(format('%s, %s, %s of them in partition %s', b.function, jeet_internal.counted(b.lag, 'event'), b.most, b.partition),
                       'no consumer')) as evidence,
       case b.why when 'is paused' then format('let it go on: jeet resume %s', b.function)
                  when 'has halted' then format('why: jeet show %s; mend it and deploy it, or let it try again: jeet resume %s', b.function, b.function)
                  when 'is being rebuilt' then format('wait until that is over: jeet show %s', b.function)
                  when 'drains for another version' then format('wait until that is over: jeet show %s', b.function)
                  else 'how far each function is behind: jeet lag; whether its rate lets it catch up: jeet top; if not, add workers: jeet worker' end as action,
       null::timestamptz as since,
       jsonb_build_object('stream', s.name, 'max_lag', s.max_lag, 'function', b.function, 'lag', b.lag) as figures
  from jeet_internal.stream s
  left join lateral (
       select l.function, l.why, sum(l.lag)::bigint as lag, max(l.lag) as most, (array_agg(l.partition order by l.lag desc))[1] as partition
         from (select f.name as function, t.stage, t.partition, h.head - c.next_offset as lag,
                      case when f.status = 'paused' then 'is paused'
                           when f.status = 'failed' or exists (select from jeet_internal.task u where u.function_id = f.id and u.status = 'halted')
                           then 'has halted'
                           when exists (select from jeet_internal.rebuild r where r.function_id = f.id) then 'is being rebuilt'
                           when f.draining then 'drains for another version' else 'slow' end as why
                 from jeet_internal.checkpoint c
                 join jeet_internal.task t on t.id = c.task_id
                 join jeet_internal.function f on f.id = t.function_id
                 join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                where c.stream_id = s.id) l
        group by l.function, l.why, l.stage order by 3 desc limit 1) b on true
 where s.over_lag and not s.internal;

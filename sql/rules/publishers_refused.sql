-- A stream is past its max_lag and takes no more events.
create or replace view jeet_internal.rule_publishers_refused as
select format('stream %s refuses publishers', s.name) as observation,
       'a consumer is further behind than the stream''s max_lag' as likely_cause,
       format('max_lag is %s events; furthest behind: %s', s.max_lag,
              coalesce(format('%s, %s events, %s of them in partition %s', b.function, b.lag, b.most, b.partition), 'no consumer')) as evidence,
       'add workers: jeet worker; which function is behind: jeet lag' as action,
       null::timestamptz as since,
       jsonb_build_object('stream', s.name, 'max_lag', s.max_lag, 'function', b.function, 'lag', b.lag) as figures
  from jeet_internal.stream s
  left join lateral (
       select l.function, sum(l.lag)::bigint as lag, max(l.lag) as most, (array_agg(l.partition order by l.lag desc))[1] as partition
         from (select f.name as function, t.stage, t.partition, h.head - c.next_offset as lag
                 from jeet_internal.checkpoint c
                 join jeet_internal.task t on t.id = c.task_id
                 join jeet_internal.function f on f.id = t.function_id
                 join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                where c.stream_id = s.id) l
        group by l.function, l.stage order by 2 desc limit 1) b on true
 where s.over_lag and not s.internal;

-- Note where streams end and where their readers stand, in one snapshot: those that have moved, and each once a minute.
-- Of a reader's notes the first of an hour is kept for a week, the first of a minute for two hours, the others for minutes.
create or replace function jeet_internal.sample_positions() returns int language sql as $$
    with now as materialized (
        select clock_timestamp() as at
    ), current as (
        select h.stream_id, 0 as function_id, 0 as stage, array_agg(h.head order by h.partition) as offsets, null::bigint as lag
          from jeet_internal.head h
         group by h.stream_id
        union all
        select c.stream_id, t.function_id, t.stage, array_agg(c.next_offset order by t.partition),
               sum(greatest(h.head - c.next_offset, 0))::bigint
          from jeet_internal.task t
          join jeet_internal.checkpoint c on c.task_id = t.id
          join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
         group by c.stream_id, t.function_id, t.stage
    ), written as (
        insert into jeet_internal.position_sample (stream_id, function_id, stage, at, offsets, lag, keep_until)
        select c.stream_id, c.function_id, c.stage, n.at, c.offsets, c.lag,
               n.at + case when last.at >= date_trunc('minute', n.at) then interval '5 minutes'
                           when last.at >= date_trunc('hour', n.at) then interval '2 hours'
                           else interval '7 days' end
          from current c
         cross join now n
          left join lateral (select p.at, p.offsets, p.lag
                               from jeet_internal.position_sample p
                              where p.stream_id = c.stream_id and p.function_id = c.function_id and p.stage = c.stage
                              order by p.at desc
                              limit 1) last on true
         where last.at is null or last.at <= n.at - interval '1 minute'
               or (last.offsets, last.lag) is distinct from (c.offsets, c.lag)
            on conflict do nothing
        returning 1
    )
    select count(*)::int from written
$$;

-- Every function with the figures that tell how it fares.
select f.name, f.version, f.status, v.spec ->> 'source' as source, v.spec ->> 'sink' as sink, f.deployed_at,
       count(t.id) filter (where t.stage = 0)::int as partitions, count(t.id)::int as tasks, count(w.id)::int as running,
       coalesce(sum(l.lag), 0)::bigint as lag,
       (select count(*) from jeet_internal.dead_letter d join jeet_internal.task dt on dt.id = d.task_id
         where dt.function_id = f.id and d.status = 'open') as dead_letters
  from jeet_internal.function f
  join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
  left join jeet_internal.task t on t.function_id = f.id
  left join jeet_internal.worker w on w.id = t.worker_id and w.status = 'running'
  left join lateral (select sum(greatest(h.head - c.next_offset, 0)) as lag
                       from jeet_internal.checkpoint c
                       join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
                      where c.task_id = t.id) l on true
 group by f.id, v.spec
 order by f.name

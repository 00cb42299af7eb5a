select t.stage, s.name as stream, t.partition, t.status, t.halt_reason, w.id as worker, w.host, t.version, t.epoch, c.next_offset, greatest(h.head - c.next_offset, 0) as lag,
       (select count(*) from jeet_internal.dead_letter d where d.task_id = t.id and d.status = 'open') as dead_letters
  from jeet_internal.task t
  join jeet_internal.checkpoint c on c.task_id = t.id
  join jeet_internal.stream s on s.id = c.stream_id
  join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
  left join jeet_internal.worker w on w.id = t.worker_id and w.status = 'running'
 where t.function_id = %(function)s
 order by t.stage, t.partition, c.stream_id

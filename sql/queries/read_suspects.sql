-- Events that are still to come and during which owners died.
select s.task_id, s.stream_id, s."offset", s.attempts
  from jeet_internal.suspect s
  join jeet_internal.checkpoint c on c.task_id = s.task_id and c.stream_id = s.stream_id and s."offset" >= c.next_offset
 where s.task_id = any ($1::int[]) and s.attempts > 0

-- The open dead letters of a function, or those of the ids, with what stands in the way of running them again.
select d.id, f.name as function, f.status as function_status, d.status,
       exists (select from jeet_internal.inbox i where i.dead_letter_id = d.id) as queued,
       d.event like '%% … [cut]' and d."offset" < h.first_offset as lost
  from jeet_internal.dead_letter d
  join jeet_internal.task t on t.id = d.task_id
  join jeet_internal.function f on f.id = t.function_id
  left join jeet_internal.head h on h.stream_id = d.stream_id and h.partition = t.partition
 where case when %(id)s::bigint is null then f.name = %(function)s and d.status = 'open' else d.id = %(id)s end
 order by d.id

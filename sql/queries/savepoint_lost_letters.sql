-- Dead letters in a savepoint that are of events in streams between stages which the function does not read any more.
select count(*) as lost
  from jeet_internal.savepoint_letter l
 where l.savepoint_id = %(savepoint)s and l.stream_id is not null
   and not exists (select from jeet_internal.task t join jeet_internal.checkpoint c on c.task_id = t.id
                    where t.function_id = %(function)s and c.stream_id = l.stream_id)

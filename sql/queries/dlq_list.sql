-- Dead letters, newest first; nulls in the parameters mean all.
select d.id, d.function, d.stage, d.partition, d."offset", d.key, d.event, d.error, d.stack, d.attempts, d.version, d.failed_at, d.status,
       d.stream, d.state_key,
       exists (select from jeet_internal.inbox i where i.dead_letter_id = d.id) as queued
  from jeet.dead_letters d
 where (%(function)s::text is null or d.function = %(function)s)
   and (%(status)s::text is null or d.status = %(status)s
        or %(status)s = 'queued' and exists (select from jeet_internal.inbox i where i.dead_letter_id = d.id))
   and (%(id)s::bigint is null or d.id = %(id)s)
 order by d.id desc
 limit %(limit)s

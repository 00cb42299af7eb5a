-- Events are processed, and yet event time has not moved: windows do not close, joins do not let go. What a stage waits for
-- in an earlier stage is told there.
create or replace view jeet_internal.rule_watermark_stalled as
with stalled as (
    select w.function, w.stage, w.held_by, w.watermark, w.since, w.partition, w.late, t.committed_at
      from jeet.watermarks w
      join jeet_internal.function f on f.name = w.function
      join jeet_internal.task t on t.function_id = f.id and t.stage = w.stage and t.partition = w.partition
     where f.status = 'running' and not f.draining and not exists (select from jeet_internal.rebuild r where r.function_id = f.id)
       and w.since < clock_timestamp() - jeet_internal.threshold_span('watermark_s')
       -- Of a function that is at rest there is nothing to expect.
       and t.committed_at > w.since + jeet_internal.threshold_span('watermark_s')
       and t.committed_at > clock_timestamp() - jeet_internal.threshold_span('watermark_s')
), ahead as (
    select s.*, s.watermark > s.committed_at + jeet_internal.threshold_span('ahead_s') as ahead from stalled s
)
select format('event time of %s stage %s stands still in %s of its partitions', a.function, a.stage, count(*)) as observation,
       case when a.ahead then 'an event came with a time far in the future; all that is earlier now counts as late'
            when a.held_by like 'stage %' then format('it waits for %s, which is quiet, behind or halted', a.held_by)
            when a.held_by like 'timers%' then 'timers are due faster than they fire'
            else format('it waits for %s, which is not idle yet and brings no later events', a.held_by) end as likely_cause,
       format('at %s since %s, while events are processed; held by %s; %s came late', min(a.watermark), date_trunc('second', min(a.since)),
              coalesce(a.held_by, 'no input'), sum(a.late)) as evidence,
       case when a.ahead then format('find the event and mend its publisher; let the function start over from after it: jeet reset %s --to=…', a.function)
            else format('see who holds it: jeet lag %s --watermarks; let a quiet input rest sooner with idle in the function, and deploy it', a.function) end as action,
       min(a.since) as since,
       jsonb_build_object('function', a.function, 'stage', a.stage, 'partitions', count(*), 'held_by', a.held_by, 'watermark', min(a.watermark)) as figures
  from ahead a
 where (a.held_by is not null or a.ahead)
   and not exists (select from ahead b where a.held_by like 'stage %' and b.function = a.function and b.stage < a.stage and (b.held_by is not null or b.ahead))
 group by a.function, a.stage, a.held_by, a.ahead;

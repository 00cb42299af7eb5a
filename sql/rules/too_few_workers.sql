-- Events come faster than a function processes them, those that wait have waited for a while, and its workers, or its tasks, are
-- busy all the time. Not told where another rule tells what is in the way.
create or replace view jeet_internal.rule_too_few_workers as
with fleet as (
    select count(*) as workers, sum(w.lanes)::bigint as lanes, sum(w.busy * w.lanes) / nullif(sum(w.lanes), 0) as busy,
           (select count(*) from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
             where t.status = 'running' and f.status = 'running') as tasks
      from jeet.workers w
     where w.status = 'running' and w.heartbeat_age < jeet_internal.threshold_span('silent_s')
), behind as (
    select r.function, r.stage, sum(r.arrival_per_s) as arrival_per_s, sum(r.processed_per_s) as processed_per_s, sum(r.lag)::bigint as lag,
           max(r.oldest_age) as oldest_age, count(distinct r.partition) as tasks, array_agg(distinct r.stream) as streams,
           (select count(*) from jeet_internal.task t where t.function_id = f.id) as all_tasks,
           avg(1 - r.share_waiting) filter (where r.lag > 0) as at_work
      from jeet.rates r
      join jeet_internal.function f on f.name = r.function
     where f.status = 'running' and not f.draining and not exists (select from jeet_internal.rebuild b where b.function_id = f.id)
       and r.stream not in (select d.figures ->> 'stream' from jeet_internal.rule_data_skew d)
     group by f.id, r.function, r.stage
    having sum(r.lag) >= jeet_internal.threshold('behind_events') and max(r.oldest_age) >= jeet_internal.threshold_span('behind_s')
       and sum(r.arrival_per_s) > sum(r.processed_per_s) * 1.05
), wanted as (
    select b.*, w.workers, w.lanes, w.busy,
           case when w.busy >= jeet_internal.threshold('busy_share')
                then jeet_internal.workers_wanted(w.workers, w.lanes, w.tasks, b.all_tasks, b.arrival_per_s, b.processed_per_s) else 0 end as more
      from behind b, fleet w
     where w.workers > 0
       and (w.busy >= jeet_internal.threshold('busy_share') or b.at_work >= jeet_internal.threshold('busy_share'))
)
select format('%s cannot keep up: events come faster than they are processed', b.function) as observation,
       case when b.more > 0 then 'workers too few for the arrival rate, or a function that takes long'
            else 'partitions too few for the arrival rate, or a function that takes long' end as likely_cause,
       format('%s events a second come, %s are processed; %s wait, the oldest for %s; %s with %s %s %% busy; %s of it%s', round(b.arrival_per_s),
              round(b.processed_per_s), b.lag, date_trunc('second', b.oldest_age), jeet_internal.counted(b.workers, 'worker'),
              jeet_internal.counted(b.lanes, 'lane'), round(b.busy * 100), jeet_internal.counted(b.tasks, 'task'), r.told) as evidence,
       case when b.more > 0 then format('start %s more, on other machines where this one is busy: jeet worker', b.more)
            else 'no more workers can help, as each task has one: deploy it on a stream with more partitions (jeet create_stream NAME --partitions=…), '
                 'or make it lighter; where its time goes: jeet figures' end as action,
       clock_timestamp() - b.oldest_age as since,
       jsonb_build_object('function', b.function, 'stage', b.stage, 'arrival_per_s', round(b.arrival_per_s), 'processed_per_s', round(b.processed_per_s),
                          'lag', b.lag, 'workers', b.workers, 'lanes', b.lanes, 'busy', round(b.busy::numeric, 2), 'tasks', b.tasks,
                          'workers_wanted', b.more) as figures
  from wanted b
 cross join lateral (select '; publishers are refused by ' || string_agg(s.name, ', ' order by s.name) as told
                       from jeet_internal.stream s where s.name = any (b.streams) and s.over_lag and not s.internal) r
 where not exists (select from jeet_internal.rule_lock_held)
   and not exists (select from jeet_internal.rule_task_stuck s where s.figures ->> 'function' = b.function)
   and not exists (select from jeet_internal.rule_poison_event p where p.figures ->> 'function' = b.function);

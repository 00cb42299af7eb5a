-- Whether a function has nothing more to do about events before a time: everything is consumed in every stage, the event
-- time that later stages go by has passed it, and no timer waits that was due by then. One statement, so one moment.
with f as (
    select id, version from jeet_internal.function where name = %(function)s),
stages as (
    select s.stage, s.inputs, s.outputs, coalesce((s.plan ->> 'timed')::boolean, false) as timed
      from jeet_internal.stage s join f on s.function_id = f.id and s.version = f.version),
passing as (
    select s.stage from stages s where s.timed and exists (select from stages later where later.timed and later.inputs && s.outputs))
select not exists (select from jeet.lag where function = %(function)s and lag > 0)
   and not exists (select from jeet_internal.task t join f on f.id = t.function_id join passing using (stage)
                    where t.watermark is null or t.watermark < to_timestamp(%(before_s)s))
   and not exists (select from jeet_internal.timer m join jeet_internal.task t on t.id = m.task_id join f on f.id = t.function_id
                    where not m.wall and m.at <= to_timestamp(%(before_s)s))

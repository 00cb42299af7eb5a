-- A function is being drained: its sources stand still.
create or replace view jeet_internal.rule_draining as
select format('%s drains', f.name) as observation,
       'another version with other stages is to take over; if no jeet deploy is at it now, it was cut short' as likely_cause,
       'its sources are not read meanwhile' as evidence,
       format('run that jeet deploy --drain again, or call it off: jeet resume %s', f.name) as action,
       null::timestamptz as since, jsonb_build_object('function', f.name) as figures
  from jeet_internal.function f
 where f.draining;

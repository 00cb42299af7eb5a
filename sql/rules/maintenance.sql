-- A maintenance job is overdue, or none is scheduled: what has expired stays, and the log grows. Told only while a coordinator
-- leads, since it is the coordinators that run them.
create or replace view jeet_internal.rule_maintenance as
with leader as (
    select l.since from jeet_internal.leader l
     where l.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('leader_silent_s')
)
select format('maintenance job %s is overdue by %s', s.entrypoint, date_trunc('second', clock_timestamp() - s.next_run)) as observation,
       'the coordinator''s scheduler lost the database, or a run of the job hangs' as likely_cause,
       format('last run %s, status %s', coalesce(date_trunc('second', s.last_run)::text, 'never'), s.status) as evidence,
       'look at the coordinator''s log for `maintenance`; if it says nothing, restart it: jeet coordinator' as action,
       s.last_run as since,
       jsonb_build_object('job', s.entrypoint, 'late_s', round(extract(epoch from clock_timestamp() - s.next_run))) as figures
  from jeet_pgqueuer.pgqueuer_schedules s, leader
 where s.next_run < clock_timestamp() - jeet_internal.threshold_span('late_s')
union all
select 'no maintenance job is scheduled', 'the coordinator''s scheduler never got to work',
       format('jeet_pgqueuer.pgqueuer_schedules is empty, though a coordinator has led since %s', date_trunc('second', leader.since)),
       'look at the coordinator''s log for `maintenance`; if it says nothing, restart it: jeet coordinator',
       leader.since, jsonb_build_object('job', null, 'late_s', null)
  from leader
 where leader.since < clock_timestamp() - jeet_internal.threshold_span('late_s')
   and not exists (select from jeet_pgqueuer.pgqueuer_schedules);

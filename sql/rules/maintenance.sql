-- A maintenance job is missing, or overdue: what has expired stays, and the log grows. Told only while a coordinator leads,
-- since it is the coordinators that run them.
create or replace view jeet_internal.rule_maintenance as
select case when j.late is null then format('maintenance job %s is not scheduled', j.name)
            else format('maintenance job %s is overdue by %s', j.name, date_trunc('second', j.late)) end as observation,
       'the coordinator''s scheduler lost the database, or a run of the job hangs' as likely_cause,
       case when j.late is null then 'it has no row in jeet_pgqueuer.pgqueuer_schedules'
            else format('last run %s, status %s', coalesce(date_trunc('second', j.last_run)::text, 'never'), j.status) end as evidence,
       'look at the coordinator''s log for `maintenance`; if it says nothing, restart it: jeet coordinator' as action,
       j.last_run as since, jsonb_build_object('job', j.name, 'late_s', round(extract(epoch from j.late))) as figures
  from (select n.name, s.last_run, s.status, clock_timestamp() - s.next_run as late, s.id, s.heartbeat
          from unnest(array['state_ttl', 'checkpoint_history', 'publish_ids', 'logs', 'workers', 'savepoints', 'retention', 'streams', 'figures', 'state_size']) n(name)
          left join jeet_pgqueuer.pgqueuer_schedules s on s.entrypoint = n.name) j
 where exists (select from jeet_internal.leader l
                where l.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('leader_silent_s')
                  and (j.late > jeet_internal.threshold_span('late_s')
                       or j.id is null and l.since < clock_timestamp() - jeet_internal.threshold_span('late_s')));

-- Functions are deployed and no coordinator leads: lost workers are not replaced, maintenance does not run.
create or replace view jeet_internal.rule_no_coordinator as
select 'no coordinator leads' as observation,
       'no coordinator process is running, or none can reach the database' as likely_cause,
       coalesce((select format('last heartbeat of a leader: %s (%s, pid %s)', date_trunc('second', l.heartbeat_at), l.host, l.pid)
                   from jeet_internal.leader l), 'no coordinator ever led this database') as evidence,
       'start one: jeet coordinator; running tasks go on meanwhile, but lost workers are not replaced' as action,
       (select l.heartbeat_at from jeet_internal.leader l) as since,
       (select jsonb_build_object('host', l.host, 'pid', l.pid) from jeet_internal.leader l) as figures
 where exists (select from jeet_internal.function)
   and not exists (select from jeet_internal.leader l
                    where l.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('leader_silent_s'));

-- A worker was taken for lost while its process lives on: it joined again as another incarnation. What happened before
-- Postgres started last is left out, as that ends all sessions.
create or replace view jeet_internal.rule_heartbeat_timeouts as
select format('workers time out while healthy: pid %s on %s', w.pid, w.host) as observation,
       'heavy JavaScript, or a machine that stalls: no heartbeat came within JEET_HEARTBEAT_TIMEOUT_S' as likely_cause,
       format(case count(*) when 1 then 'taken for lost once, %3$s ago; the process lives on as worker %2$s'
                            else 'taken for lost %1$s times, last %3$s ago; the process lives on as worker %2$s' end,
              count(*), max(n.id), date_trunc('second', clock_timestamp() - max(w.heartbeat_at)))
       || coalesce((select format('; slowest event of the last hour: %s ms, %s offset %s', round(e.cpu_ms), e.function, e."offset")
                      from jeet.slowest_events e where e.at > clock_timestamp() - interval '1 hour' and e.span = interval '1 minute'
                     order by e.cpu_ms desc limit 1), '') as evidence,
       'raise JEET_HEARTBEAT_TIMEOUT_S on workers and coordinators, split the work of an event, or lower JEET_SLICE_MS; where time goes: jeet figures' as action,
       min(w.heartbeat_at) as since,
       jsonb_build_object('host', w.host, 'pid', w.pid, 'timeouts', count(*), 'worker', max(n.id)) as figures
  from jeet_internal.worker w
  join lateral (select n.id from jeet_internal.worker n
                 where n.process = w.process and n.status <> 'lost'
                   and n.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('silent_s')) n on n.id > w.id
 where w.status = 'lost' and w.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('lost_s')
   and w.heartbeat_at > pg_postmaster_start_time()
 group by w.host, w.pid, w.process
having count(*) >= jeet_internal.threshold('timeouts');

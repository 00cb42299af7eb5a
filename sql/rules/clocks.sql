-- A worker's clock is apart from the database's. Leases and expiry go by the database's alone, but times in logs cannot be
-- compared. `jeet doctor` adds the clock of the machine that it runs on.
create or replace view jeet_internal.rule_clocks as
select format('the clock of worker %s on %s is %s s %s the database''s', w.id, w.host, round(abs(w.clock_offset_ms)::numeric / 1000, 1),
              case when w.clock_offset_ms > 0 then 'ahead of' else 'behind' end) as observation,
       'one of the two machines does not follow a time server' as likely_cause,
       format('measured to within %s ms, %s ago', round(w.clock_error_ms::numeric, 1), date_trunc('second', w.figures_age)) as evidence,
       'on both machines, see: timedatectl status' as action,
       null::timestamptz as since,
       jsonb_build_object('worker', w.id, 'host', w.host, 'offset_s', round(w.clock_offset_ms::numeric / 1000, 3)) as figures
  from jeet.workers w
 where w.status = 'running' and abs(w.clock_offset_ms) - w.clock_error_ms > jeet_internal.threshold('clock_s') * 1000;

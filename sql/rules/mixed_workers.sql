-- Workers of different versions of Jeet, or with different plugins, run side by side for longer than it takes to replace them.
create or replace view jeet_internal.rule_mixed_workers as
with kind as (
    select w.version, w.plugin_hash, count(*) as workers, min(w.started_at) as since,
           string_agg(format('%s pid %s', w.host, w.pid), ', ' order by w.id) as which
      from jeet_internal.worker w
     where w.status = 'running' and w.heartbeat_at > clock_timestamp() - jeet_internal.threshold_span('silent_s')
     group by w.version, w.plugin_hash
)
select case when count(distinct version) > 1 then 'workers of different versions of Jeet run side by side'
            else 'workers with different plugins run side by side' end as observation,
       'some were replaced and others were not' as likely_cause,
       string_agg(format('%s with version %s, plugin %s: %s', workers, version, coalesce(left(plugin_hash, 12), 'none'), which), '; '
                  order by workers desc, version) as evidence,
       'stop those that are behind, and start them anew: jeet worker' as action,
       max(since) as since,
       jsonb_build_object('versions', count(distinct version), 'plugins', count(distinct plugin_hash)) as figures
  from kind
having count(*) > 1 and max(since) < clock_timestamp() - jeet_internal.threshold_span('mixed_s');

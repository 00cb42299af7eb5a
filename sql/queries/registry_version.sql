select v.spec, v.source is not null as has_source, v.plugin_hash,
       array(select distinct w.plugin_hash from jeet_internal.worker w where w.status = 'running' and w.plugin_hash is not null) as worker_plugins
  from jeet_internal.function_version v
 where v.function_id = %(function)s and v.version = %(version)s
